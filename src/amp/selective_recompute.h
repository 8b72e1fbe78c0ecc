#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "amp/recompute_generators.h"

namespace ampkit::recompute_detail {

/// The results of chosen ops in one call of checkpoint(), in the order of their
/// calls: kept in forward, given out in a recomputation instead of running the
/// ops again.
///
/// Autograd must see the op as always, since that saves its inputs and makes
/// its node; only the kernel below autograd is left out. So the ops are stopped
/// at the ADInplaceOrView key, directly below autograd, where functional ops
/// have nothing.
class KeptResults {
 public:
  /// `ops`: as in RecomputeOptions. Throws c10::ValueError for an op that is
  /// not known, gives a view, or has no kernel of its own below autograd.
  /// `with_generators`: whether the states of the random generators after an op
  /// that draws from them are kept too.
  KeptResults(const std::vector<std::string>& ops, bool with_generators);

  bool chosen(const c10::OperatorHandle& op) const;

  /// Keeps the last results on `stack`, those of `op`.
  void keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  /// Puts the results of the `call`-th call in place of the arguments of `op`.
  void give(
      size_t call,
      const c10::OperatorHandle& op,
      torch::jit::Stack& stack) const;

  size_t calls() const { return calls_.size(); }

 private:
  struct Call {
    c10::OperatorName op;
    std::vector<c10::IValue> results;
    std::vector<uint32_t> versions; // 0 for what is no tensor
    GeneratorStates generators; // after an op that draws random numbers
  };

  std::unordered_set<c10::OperatorName> ops_;
  bool with_generators_;
  std::vector<Call> calls_;
};

/// While it lives, chosen ops of the calling thread are kept, or given. Nests;
/// the innermost counts. Null: every op runs, and nothing is kept.
class KeepScope {
 public:
  enum class Mode : uint8_t { keep, give };

  KeepScope(KeptResults* results, Mode mode);
  ~KeepScope();
  KeepScope(const KeepScope&) = delete;
  KeepScope(KeepScope&&) = delete;
  KeepScope& operator=(const KeepScope&) = delete;
  KeepScope& operator=(KeepScope&&) = delete;

 private:
  KeptResults* results_before_;
  Mode mode_before_;
  size_t next_before_;
};

} // namespace ampkit::recompute_detail
