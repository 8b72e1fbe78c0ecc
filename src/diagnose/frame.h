#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include "diagnose/op_traits.h"

namespace ampkit::diagnose {

class OpObserver;

/// An op that runs, from its start to its end.
struct Frame : at::ObserverContext {
  struct Input {
    const c10::StorageImpl* storage = nullptr;
    int32_t value = -1;
  };

  Frame() = default;
  Frame(const Frame&) = delete;
  Frame(Frame&&) = delete;
  Frame& operator=(const Frame&) = delete;
  Frame& operator=(Frame&&) = delete;
  ~Frame() override;

  /// Makes it the thread's innermost one.
  void push();
  /// The thread's innermost one; null: none.
  static Frame* innermost();

  std::shared_ptr<OpObserver> observer;
  Frame* parent = nullptr;
  const at::RecordFunction* fn = nullptr; ///< lives as long
  std::string name;
  bool is_node = false; ///< of the backward graph
  std::string node; ///< it or the one around it
  int64_t sequence = -1; ///< of that
  int32_t forward_op = -1; ///< of that
  int32_t module = -1;
  int32_t named = -1;
  OpTraits traits;
  size_t first_value = 0; ///< values from this one on were made inside
  c10::SmallVector<Input, 4> inputs;
  std::vector<c10::IValue> arguments; ///< of a node: none
  bool constant_inf = false;
  int32_t suspect = -1; ///< op of the tape: a bad value it made inside

 private:
  bool pushed_ = false;
};

} // namespace ampkit::diagnose
