#include <ampkit/optim/fused_optimizer.h>

#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include "amp/adaptive_clip.h"
#include "optim/fused_optimizer_impl.h"
#include "optim/gradient_pass.h"
#include "optim/optimizer_archive.h"
#include "optim/stock_update.h"

namespace ampkit::optim {

NamedParameters named(const torch::nn::Module& module) {
  NamedParameters named;
  for (const auto& item : module.named_parameters()) {
    named.params.push_back(item.value());
    named.names.push_back(item.key());
  }
  return named;
}

bool FusedOptimizer::Impl::in_line_with(const Groups& groups) const {
  size_t i = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& parameter : groups[g].params()) {
      if (i == records.size() || records[i]->group != g ||
          !records[i]->parameter.is_same(parameter)) {
        return false;
      }
      ++i;
    }
  }
  return i == records.size();
}

void FusedOptimizer::Impl::follow(const Groups& groups) {
  if (in_line_with(groups)) {
    return;
  }
  std::unordered_map<const void*, std::unique_ptr<ParameterRecord>> known;
  for (auto& record : records) {
    known[record->parameter.unsafeGetTensorImpl()] = std::move(record);
  }
  records.clear();
  group_names.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& parameter : groups[g].params()) {
      auto& record = known[parameter.unsafeGetTensorImpl()];
      if (record == nullptr) {
        record = std::make_unique<ParameterRecord>();
        record->parameter = parameter;
        record->name = std::to_string(records.size());
      }
      record->group = g;
      records.push_back(std::move(record));
    }
  }
}

std::vector<Work> FusedOptimizer::Impl::collect(const Groups& groups) {
  follow(groups);
  std::vector<Work> works;
  works.reserve(records.size());
  for (const auto& record : records) {
    const at::Tensor& grad = record->parameter.grad();
    if (!grad.defined()) {
      continue;
    }
    TORCH_CHECK(
        record->parameter.device() == device(),
        rule->name(),
        ": parameter ",
        describe(*record),
        " is on ",
        record->parameter.device(),
        ", others are on ",
        device(),
        "; make one optimizer for each device");
    works.push_back(
        {record.get(),
         &groups[record->group].options(),
         usable_gradient(rule->name(), *record, grad)});
  }
  return works;
}

const ParameterRecord& FusedOptimizer::Impl::find(
    const at::Tensor& parameter) const {
  for (const auto& record : records) {
    if (record->parameter.is_same(parameter)) {
      return *record;
    }
  }
  TORCH_CHECK(
      false,
      rule->name(),
      ": a tensor of shape ",
      parameter.sizes(),
      " is none of the ",
      records.size(),
      " parameters of this optimizer");
}

c10::Device FusedOptimizer::Impl::device() const {
  TORCH_CHECK(
      !records.empty(), rule->name(), ": the groups have 0 parameters left");
  return records.front()->parameter.device();
}

bool FusedOptimizer::Impl::uses_own_kernel(const Work& work) const {
  const at::Tensor& parameter = work.record->parameter;
  const bool possible = has_own_kernel(parameter) &&
                        has_own_kernel(work.grad) &&
                        rule->has_own_kernel(parameter);
  const Kernel kernel = rule->kernel(*work.options);
  TORCH_CHECK(
      possible || kernel != Kernel::highway,
      rule->name(),
      ": Kernel::highway can't update parameter ",
      describe(*work.record),
      " on ",
      parameter.device(),
      "; choose Kernel::automatic");
  return possible && kernel != Kernel::stock;
}

FusedOptimizer::Impl::ByKernel FusedOptimizer::Impl::prepare(
    std::vector<Work> works) const {
  ByKernel parts;
  const OptimizerOptions* checked = nullptr;
  for (Work& work : works) {
    if (work.options != checked) {
      rule->check_options(*work.options);
      checked = work.options;
    }
    rule->check_parameter(work.record->name, work.record->parameter);
    auto& part = uses_own_kernel(work) ? parts.own : parts.stock;
    part.push_back(std::move(work));
  }
  for (const auto* part : {&parts.own, &parts.stock}) {
    for (const Work& work : *part) {
      prepare_state(*rule, *work.record, *work.options, keep_masters);
    }
  }
  return parts;
}

std::vector<at::Tensor> FusedOptimizer::Impl::add_records(
    const RawGroup& group, size_t index) {
  std::vector<at::Tensor> params;
  std::unordered_set<const void*> seen;
  for (size_t i = 0; i < group.params.size(); ++i) {
    const at::Tensor& parameter = group.params[i];
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
      continue; // a tied parameter, listed once for each of its modules
    }
    auto record = std::make_unique<ParameterRecord>();
    record->parameter = parameter;
    record->name =
        group.names.empty() ? std::to_string(records.size()) : group.names[i];
    record->group = index;
    records.push_back(std::move(record));
    params.push_back(parameter);
  }
  return params;
}

FusedOptimizer::FusedOptimizer(
    std::unique_ptr<UpdateRule> rule, std::vector<RawGroup> groups)
    : torch::optim::Optimizer(
          Groups(), groups.empty() ? nullptr : groups.front().options->clone()),
      impl_(std::make_unique<Impl>()) {
  impl_->rule = std::move(rule);
  TORCH_CHECK_VALUE(
      !groups.empty(), impl_->rule->name(), ": there are 0 parameter groups");
  for (RawGroup& group : groups) {
    add_group(std::move(group));
  }
}

FusedOptimizer::~FusedOptimizer() = default;

void FusedOptimizer::add_group(RawGroup group) {
  impl_->follow(param_groups_);
  impl_->rule->check_options(*group.options);
  check_group(*impl_->rule, group, impl_->records);
  auto params = impl_->add_records(group, param_groups_.size());
  impl_->group_names.push_back(group.name);
  param_groups_.emplace_back(std::move(params), std::move(group.options));
}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  fused_step({});
  return loss;
}

GradientSummary FusedOptimizer::inspect_gradients(double norm_type) {
  TORCH_CHECK_VALUE(
      norm_type == 1 || norm_type == 2 || std::isinf(norm_type),
      impl_->rule->name(),
      "::inspect_gradients: norm_type must be 1, 2 or infinity, got ",
      norm_type);
  const at::NoGradGuard no_grad;
  const auto works = impl_->collect(param_groups_);
  std::vector<int64_t> counts;
  auto summary = read_gradients(works, impl_->device(), norm_type, counts);
  impl_->inspected.clear();
  impl_->inspected_on_cpu = impl_->device().is_cpu();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) {
      impl_->inspected.push_back(
          {works[i].record->name, counts[i], works[i].grad.numel()});
    }
  }
  return summary;
}

namespace {

bool on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu();
}

/// `tensor`: fp32 []. Waits for its device; of the CPU, not even the cost of an
/// operator.
float value_of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? *tensor.const_data_ptr<float>()
                         : tensor.item<float>();
}

void check_input(const at::Tensor& tensor, const char* who) {
  TORCH_CHECK(
      !tensor.defined() ||
          (tensor.numel() == 1 && tensor.scalar_type() == at::kFloat),
      who,
      "::fused_step: grad_divisor and found_inf must be Float [], got ",
      tensor.scalar_type(),
      " ",
      tensor.sizes());
}

void check_inputs(const FusedStepInputs& inputs, const char* who) {
  check_input(inputs.grad_divisor, who);
  check_input(inputs.found_inf, who);
  TORCH_CHECK_VALUE(
      !inputs.clip_value.has_value() || *inputs.clip_value > 0,
      who,
      "::fused_step: clip_value must be > 0, got ",
      inputs.clip_value.value_or(0));
  if (inputs.adaptive_clip.has_value()) {
    check_adaptive_clip(*inputs.adaptive_clip, who);
  }
}

void check_divisor(const at::Tensor& divisor, const char* who) {
  if (on_cpu(divisor)) {
    TORCH_CHECK_VALUE(
        value_of(divisor) > 0,
        who,
        "::fused_step: grad_divisor must be > 0, got ",
        value_of(divisor));
  }
}

/// Known on the host without waiting; elsewhere the kernels decide.
bool is_skipped(const FusedStepInputs& inputs, c10::Device device) {
  return inputs.found_inf.defined() &&
         (device.is_cpu() || inputs.found_inf.is_cpu()) &&
         value_of(inputs.found_inf) != 0;
}

} // namespace

void FusedOptimizer::Impl::update(
    const ByKernel& parts, const FusedStepInputs& inputs) {
  update_with_stock_ops(*rule, parts.stock, inputs);
  if (parts.own.empty()) {
    return;
  }
  GradientUse use;
  if (inputs.grad_divisor.defined()) {
    use.inverse_divisor = static_cast<float>(
        1 / static_cast<double>(value_of(inputs.grad_divisor)));
  }
  if (inputs.clip_value.has_value()) {
    use.clip_value = static_cast<float>(*inputs.clip_value);
  }
  update_with_own_kernels(*rule, parts.own, use);
}

void FusedOptimizer::Impl::update_in_batches(
    const ByKernel& parts, const FusedStepInputs& inputs) {
  for (const auto* part : {&parts.own, &parts.stock}) {
    for (size_t first = 0; first < part->size();) {
      const size_t end = end_of_batch(*part, first);
      const auto batch = std::span(*part).subspan(first, end - first);
      update_batch({batch.begin(), batch.end()}, part == &parts.own, inputs);
      first = end;
    }
  }
}

void FusedOptimizer::Impl::update_batch(
    std::vector<Work> batch, bool own, const FusedStepInputs& inputs) {
  std::vector<ParameterRecord*> without_master;
  for (const Work& work : batch) {
    if (needs_master(work.record->parameter) && !keep_masters) {
      without_master.push_back(work.record);
      make_master(*work.record);
    }
  }
  FusedStepInputs rest = inputs;
  if (inputs.adaptive_clip.has_value()) {
    batch = clip_works(batch, inputs.grad_divisor, *inputs.adaptive_clip);
    rest.adaptive_clip.reset();
    rest.grad_divisor.reset();
  }
  update(
      own ? ByKernel{std::move(batch), {}} : ByKernel{{}, std::move(batch)},
      rest);
  for (ParameterRecord* record : without_master) {
    record->master.reset();
  }
}

void FusedOptimizer::fused_step(const FusedStepInputs& inputs) {
  const at::NoGradGuard no_grad;
  const UpdateRule& rule = *impl_->rule;
  auto works = impl_->collect(param_groups_);
  check_inputs(inputs, rule.name());
  if (is_skipped(inputs, impl_->device())) {
    return;
  }
  check_divisor(inputs.grad_divisor, rule.name());
  const auto parts = impl_->prepare(std::move(works));
  if (inputs.adaptive_clip.has_value() || !impl_->keep_masters) {
    impl_->update_in_batches(parts, inputs);
  } else {
    impl_->update(parts, inputs);
  }
}

void FusedOptimizer::keep_masters(bool keep) {
  impl_->keep_masters = keep;
}

std::vector<NonFiniteGradient> FusedOptimizer::non_finite_gradients() const {
  if (impl_->inspected_on_cpu) {
    return impl_->inspected;
  }
  std::vector<NonFiniteGradient> found;
  for (const auto& record : impl_->records) {
    const at::Tensor& grad = record->parameter.grad();
    if (grad.defined()) {
      const auto count = grad.isfinite().logical_not().sum().item<int64_t>();
      if (count > 0) {
        found.push_back({record->name, count, grad.numel()});
      }
    }
  }
  return found;
}

at::Tensor FusedOptimizer::master(const at::Tensor& parameter) const {
  const ParameterRecord& record = impl_->find(parameter);
  return record.master.defined() ? record.master : parameter;
}

const std::string& FusedOptimizer::name_of(const at::Tensor& parameter) const {
  return impl_->find(parameter).name;
}

int64_t FusedOptimizer::steps_of(const at::Tensor& parameter) const {
  return steps_taken(impl_->find(parameter));
}

void FusedOptimizer::save(torch::serialize::OutputArchive& archive) const {
  write_archive(archive, state_dict());
}

void FusedOptimizer::load(torch::serialize::InputArchive& archive) {
  load_state_dict(read_archive(archive, impl_->rule->name()));
}

} // namespace ampkit::optim
