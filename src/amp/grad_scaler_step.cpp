// GradScaler: from gradients to a step that is taken or not.

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include "amp/grad_scaler_impl.h"

namespace ampkit {
namespace {

// In FP64, as PyTorch does: some builds only approximate FP32 division.
at::Tensor inverse_of(const at::Tensor& scale) {
  return scale.to(at::kDouble).reciprocal().to(at::kFloat);
}

void check_set(
    const std::vector<std::reference_wrapper<torch::optim::Optimizer>>&
        optimizers,
    const char* who) {
  TORCH_CHECK_VALUE(
      !optimizers.empty(), "GradScaler::", who, ": there are 0 optimizers");
  std::set<const torch::optim::Optimizer*> seen;
  for (const torch::optim::Optimizer& optimizer : optimizers) {
    TORCH_CHECK_VALUE(
        seen.insert(&optimizer).second,
        "GradScaler::",
        who,
        ": each optimizer must be listed once, got one of ",
        optimizers.size(),
        " twice");
  }
}

at::Tensor combined(const std::vector<at::Tensor>& norms, double norm_type) {
  if (norms.size() == 1) {
    return norms.front();
  }
  std::vector<at::Tensor> on_one_device;
  for (const at::Tensor& norm : norms) {
    on_one_device.push_back(norm.to(norms.front().device()));
  }
  return at::linalg_vector_norm(at::stack(on_one_device), norm_type);
}

bool is_lbfgs(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr;
}

} // namespace

GradScaler::Impl::Record& GradScaler::Impl::require_record(
    torch::optim::Optimizer& optimizer, const char* who) {
  TORCH_CHECK(
      !options.enabled || scale.placed(),
      "GradScaler::",
      who,
      ": call scale(loss).backward() first");
  Record& record = records[&optimizer];
  TORCH_CHECK(
      !record.stepped,
      "GradScaler::",
      who,
      ": step() has already been called for this optimizer since the last "
      "update(); call update() once per iteration");
  return record;
}

void GradScaler::Impl::require_gradient(
    const torch::optim::Optimizer& optimizer) const {
  const auto total = parameter_count(optimizer);
  size_t frozen = 0;
  size_t known = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      frozen += parameter.requires_grad() ? 0 : 1;
      known += names.count(parameter.unsafeGetTensorImpl());
    }
  }
  const bool other_tensors = !names.empty() && known == 0;
  TORCH_CHECK(
      false,
      "GradScaler::step: 0 of ",
      total,
      " parameters have gradients",
      frozen > 0 ? c10::str(" (", frozen, " are frozen)") : "",
      other_tensors
          ? "; none of them is a parameter of the module given to "
            "name_parameters(): make the optimizer after the module was moved, "
            "cast or replaced"
          : "; was the loss detached, or the model moved or replaced after the "
            "optimizer was made?",
      " (StepOptions.allow_no_grad skips such steps)");
}

void GradScaler::Impl::unscale(
    const torch::optim::Optimizer& optimizer,
    const std::vector<Gradient>& gradients,
    Record& record) const {
  const auto check = unscale_and_check_(
      gradients,
      options.enabled ? inverse_of(scale.tensor()) : at::Tensor(),
      namer());
  record.facts = std::make_shared<const StepFacts>(StepFacts{
      .skipped = check.bad | bad_loss,
      .bad_loss = bad_loss,
      .leftover = leftovers->found(&optimizer),
      .bad_gradients = check.which});
  record.unscaled = true;
  for (const auto& group : optimizer.param_groups()) {
    scaled_gradients->unscaled(group.params());
  }
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!impl_->checks()) {
    return;
  }
  Impl::Record& record = impl_->require_record(optimizer, "unscale_");
  TORCH_CHECK(
      !record.unscaled,
      "GradScaler::unscale_: already called for this optimizer since the last "
      "update(); if the iteration was given up, call abandon()");
  check_dtypes(optimizer, impl_->namer());
  const auto gradients = defined_gradients(optimizer);
  if (impl_->options.enabled) {
    check_unscalable(gradients, impl_->namer());
  }
  impl_->unscale(optimizer, gradients, record);
}

StepResult GradScaler::step(
    torch::optim::Optimizer& optimizer, const StepOptions& options) {
  return impl_->step({optimizer}, options, "step");
}

StepResult GradScaler::step_all_or_none(
    const Optimizers& optimizers, const StepOptions& options) {
  check_set(optimizers, "step_all_or_none");
  return impl_->step(optimizers, options, "step_all_or_none");
}

StepResult GradScaler::Impl::step(
    const Optimizers& optimizers,
    const StepOptions& step_options,
    const char* who) {
  check_step_options(step_options, who);
  if (std::ranges::any_of(optimizers, is_lbfgs)) {
    return step_lbfgs(optimizers, step_options);
  }
  if (step_options.closure) {
    const at::AutoGradMode with_gradients(true);
    step_options.closure();
  }
  auto parts = parts_of(optimizers, step_options, who);
  if (parts.empty() && options.agree_over_ranks) {
    return follow_others(
        optimizers, judge(Flag(), parts, optimizers), step_options);
  }
  if (parts.empty()) {
    return StepResult(std::make_shared<const StepFacts>(
        StepFacts{.skipped = Flag(true), .no_gradient = true}));
  }
  Flag bad;
  std::vector<at::Tensor> norms;
  for (Part& part : parts) {
    inspect(part, step_options);
    bad = bad | part.bad;
    if (part.norm.defined()) {
      norms.push_back(part.norm);
    }
  }
  at::Tensor norm;
  at::Tensor factor;
  if (!norms.empty()) {
    norm = combined(norms, step_options.norm_type);
    if (parts.size() > 1) {
      bad = bad | Flag::not_finite(norm);
    }
    if (step_options.max_norm.has_value()) {
      factor = clip_factor(norm, *step_options.max_norm);
    }
  }
  const auto verdict = judge(bad, parts, optimizers);
  take_step(parts, verdict.skip, factor, step_options);
  return finish_step(parts, verdict, norm);
}

// LBFGS runs its closure many times a step and compares the losses.
StepResult GradScaler::Impl::step_lbfgs(
    const Optimizers& optimizers, const StepOptions& step_options) {
  TORCH_CHECK(
      !checks() && optimizers.size() == 1,
      "GradScaler::step: LBFGS computes gradients inside step(), many times, "
      "where nobody unscales or checks them; use it with FP32 or BF16 and a "
      "disabled scaler");
  TORCH_CHECK_VALUE(
      !step_options.max_norm.has_value() &&
          !step_options.clip_value.has_value() &&
          !step_options.adaptive_clip.has_value(),
      "GradScaler::step: max_norm, clip_value and adaptive_clip must be absent "
      "for LBFGS, which computes gradients inside step()");
  optimizers.front().get().step(step_options.closure);
  counter.count_step(Flag(false), Flag(false));
  return StepResult::of(true);
}

// Checks all that can be checked before anything changes. The fused ones come
// first: their look at the gradients, which may still throw, writes nothing.
std::vector<GradScaler::Impl::Part> GradScaler::Impl::parts_of(
    const Optimizers& optimizers,
    const StepOptions& step_options,
    const char* who) {
  std::vector<Part> fused;
  std::vector<Part> unfused;
  for (torch::optim::Optimizer& optimizer : optimizers) {
    Record& record = require_record(optimizer, who);
    if (!any_gradient(optimizer)) {
      // With several ranks another one may have some.
      if (!step_options.allow_no_grad && !options.agree_over_ranks) {
        require_gradient(optimizer);
      }
      records.erase(&optimizer);
      continue;
    }
    auto* as_fused = dynamic_cast<FusedStep*>(&optimizer);
    if (checks()) {
      check_dtypes(optimizer, namer());
    }
    if (options.enabled && as_fused != nullptr) {
      for (const auto& group : optimizer.param_groups()) {
        scaled_gradients->know(group.params());
      }
    }
    if (as_fused == nullptr && options.enabled && !record.unscaled) {
      check_unscalable(defined_gradients(optimizer), namer());
    }
    (as_fused != nullptr ? fused : unfused)
        .push_back(
            {.optimizer = &optimizer, .record = &record, .fused = as_fused});
  }
  fused.insert(fused.end(), unfused.begin(), unfused.end());
  return fused;
}

void GradScaler::Impl::inspect(
    Part& part, const StepOptions& step_options) const {
  const auto gradients = part.fused == nullptr
                             ? defined_gradients(*part.optimizer)
                             : std::vector<Gradient>();
  if (part.fused == nullptr && checks() && !part.record->unscaled) {
    unscale(*part.optimizer, gradients, *part.record);
  }
  if (part.record->facts) { // of having been unscaled
    part.bad = part.record->facts->skipped;
    part.which = part.record->facts->bad_gradients;
  }
  if (part.fused != nullptr) {
    inspect_fused(part, step_options);
  } else if (step_options.max_norm.has_value()) {
    part.norm = total_norm(
        gradients, gradients.front().values.device(), step_options.norm_type);
    part.bad = part.bad | Flag::not_finite(part.norm);
  }
}

void GradScaler::Impl::inspect_fused(
    Part& part, const StepOptions& step_options) const {
  const bool unchecked = checks() && !part.record->unscaled;
  if (!unchecked && !step_options.max_norm.has_value()) {
    return;
  }
  const auto summary = part.fused->inspect_gradients(step_options.norm_type);
  at::Tensor norm = summary.norm;
  if (options.enabled && !part.record->unscaled) {
    norm = norm / scale.tensor();
  }
  part.norm = norm.to(at::kFloat);
  part.bad =
      part.bad | Flag(summary.non_finite.ne(0)) | Flag::not_finite(part.norm);
  if (!part.record->unscaled && summary.non_finite_counts.defined()) {
    std::vector<std::string> labels;
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < summary.parameters.size(); ++i) {
      const auto named =
          names.find(summary.parameters[i].unsafeGetTensorImpl());
      labels.push_back(named != names.end() ? named->second : summary.names[i]);
      sizes.push_back(summary.parameters[i].numel());
    }
    part.which = BadGradients(
        summary.non_finite_counts, std::move(labels), std::move(sizes));
  }
}

void GradScaler::Impl::take_step(
    const std::vector<Part>& parts,
    const Flag& skip,
    const at::Tensor& clip_factor,
    const StepOptions& step_options) const {
  Flag known = skip;
  for (const Part& part : parts) {
    if (part.fused == nullptr && !known.is_known()) {
      // The one wait: an optimizer that is not ampkit's can't be told to skip
      // on the device.
      known = Flag(skip.read());
    }
  }
  if (known.is_known() && known.read()) {
    return;
  }
  for (const Part& part : parts) {
    if (part.fused != nullptr) {
      take_fused_step(part, known, clip_factor, step_options);
      continue;
    }
    if (clip_factor.defined()) {
      multiply_(defined_gradients(*part.optimizer), clip_factor);
    }
    if (step_options.clip_value.has_value()) {
      clamp_(defined_gradients(*part.optimizer), *step_options.clip_value);
    }
    if (step_options.adaptive_clip.has_value()) {
      clip_adaptively_(
          defined_gradients(*part.optimizer), *step_options.adaptive_clip);
    }
    part.optimizer->step();
  }
}

void GradScaler::Impl::take_fused_step(
    const Part& part,
    const Flag& skip,
    const at::Tensor& clip_factor,
    const StepOptions& step_options) const {
  at::Tensor divisor =
      options.enabled && !part.record->unscaled ? scale.tensor() : at::Tensor();
  if (clip_factor.defined()) {
    divisor =
        divisor.defined() ? divisor / clip_factor : clip_factor.reciprocal();
  }
  part.fused->fused_step(
      {.grad_divisor = divisor,
       .found_inf = skip.is_known() ? at::Tensor()
                                    : skip.tensor(skip.device()).to(at::kFloat),
       .clip_value = step_options.clip_value,
       .adaptive_clip = step_options.adaptive_clip});
}

StepResult GradScaler::Impl::finish_step(
    const std::vector<Part>& parts,
    const Verdict& verdict,
    const at::Tensor& norm) {
  const bool agreed = static_cast<bool>(options.agree_over_ranks);
  const Flag& skip = verdict.skip;
  StepFacts together{
      .skipped = skip,
      .bad_loss = verdict.bad_loss,
      .leftover = verdict.leftover,
      .agreed = agreed,
      .grad_norm = norm};
  for (const Part& part : parts) {
    StepFacts facts{
        .skipped = skip,
        .bad_loss = verdict.bad_loss,
        .leftover =
            agreed ? verdict.leftover : leftovers->found(part.optimizer),
        .agreed = agreed,
        .grad_norm = norm,
        .bad_gradients = part.which};
    together.bad_gradients.append(part.which);
    counter.count_step(skip, facts.fault());
    part.record->facts = std::make_shared<const StepFacts>(std::move(facts));
    part.record->stepped = true;
    if (!checks()) {
      records.erase(part.optimizer); // update() need not be called
    } else if (!options.torch_exact && (!skip.is_known() || skip.read())) {
      leftovers->remember(
          part.optimizer, defined_gradients(*part.optimizer), skip);
    }
  }
  return StepResult(std::make_shared<const StepFacts>(std::move(together)));
}

} // namespace ampkit
