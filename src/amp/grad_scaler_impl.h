#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fused_step.h>
#include <ampkit/amp/grad_scaler.h>

#include "amp/flag.h"
#include "amp/gradients.h"
#include "amp/leftover_gradients.h"
#include "amp/loss_scale.h"
#include "amp/scaled_gradients.h"
#include "amp/skip_counter.h"
#include "amp/step_facts.h"

namespace ampkit {

/// Throws c10::ValueError "GradScaler::`who`: ...", naming the field.
void check_step_options(const StepOptions& options, const char* who);

struct GradScaler::Impl {
  // What one optimizer went through since the last update().
  struct Record {
    std::shared_ptr<const StepFacts> facts; // of the last call; may be null
    bool unscaled = false;
    bool stepped = false;
  };

  // An optimizer on its way through a step.
  struct Part {
    torch::optim::Optimizer* optimizer = nullptr;
    Record* record = nullptr;
    FusedStep* fused = nullptr; // null: LibTorch's or somebody else's
    Flag bad;
    BadGradients which;
    at::Tensor norm; // fp32 [], of the unscaled gradients; if it was measured
  };

  // Whether a step is skipped, and why.
  struct Verdict {
    Flag skip;
    Flag bad_loss;
    Flag leftover;
    Flag has_gradient;

    Flag fault() const { return skip & (bad_loss | leftover); }
  };

  explicit Impl(const GradScalerOptions& given);

  /// Whether gradients are checked, scaled or not.
  bool checks() const {
    return options.enabled || options.check_without_scaling;
  }

  std::string name_of(const Gradient& gradient) const;
  GradientName namer() const;
  void note(const at::Tensor& loss);

  // grad_scaler_step.cpp
  Record& require_record(torch::optim::Optimizer& optimizer, const char* who);
  void require_gradient(const torch::optim::Optimizer& optimizer) const;
  void unscale(
      const torch::optim::Optimizer& optimizer,
      const std::vector<Gradient>& gradients,
      Record& record) const;
  StepResult step(
      const Optimizers& optimizers,
      const StepOptions& step_options,
      const char* who);
  StepResult step_lbfgs(
      const Optimizers& optimizers, const StepOptions& step_options);
  std::vector<Part> parts_of(
      const Optimizers& optimizers,
      const StepOptions& step_options,
      const char* who);
  void inspect(Part& part, const StepOptions& step_options) const;
  void inspect_fused(Part& part, const StepOptions& step_options) const;
  void take_step(
      const std::vector<Part>& parts,
      const Flag& skip,
      const at::Tensor& clip_factor,
      const StepOptions& step_options) const;
  void take_fused_step(
      const Part& part,
      const Flag& skip,
      const at::Tensor& clip_factor,
      const StepOptions& step_options) const;
  StepResult finish_step(
      const std::vector<Part>& parts,
      const Verdict& verdict,
      const at::Tensor& norm);

  // grad_scaler_agreement.cpp
  Verdict agree(
      const Verdict& own, const torch::optim::Optimizer& optimizer) const;
  Verdict judge(
      const Flag& bad,
      const std::vector<Part>& parts,
      const Optimizers& optimizers) const;
  StepResult follow_others(
      const Optimizers& optimizers,
      const Verdict& verdict,
      const StepOptions& step_options);

  // grad_scaler_update.cpp
  void end_iteration(const char* who);
  void check_limits(std::vector<std::shared_ptr<const StepFacts>> facts);

  GradScalerOptions options;
  LossScale scale;
  SkipCounter counter;
  Flag bad_loss; // since the last update()
  std::shared_ptr<LeftoverGradients> leftovers =
      std::make_shared<LeftoverGradients>();
  std::unique_ptr<ScaledGradients> scaled_gradients =
      std::make_unique<ScaledGradients>();
  std::unordered_map<torch::optim::Optimizer*, Record> records;
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  // Of the iteration whose counts are on their way from the device.
  std::vector<std::shared_ptr<const StepFacts>> counted_facts;
};

} // namespace ampkit
