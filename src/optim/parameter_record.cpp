#include "optim/parameter_record.h"

#include <unordered_map>
#include <unordered_set>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "optim/huge_pages.h"
#include "optim/update_rule.h"

namespace ampkit::optim {
namespace {

void check_parameter(
    const std::string& who,
    const std::string& name,
    const at::Tensor& parameter) {
  const std::string head = who + ": parameter '" + name + "' ";
  TORCH_CHECK_VALUE(parameter.defined(), head, "is undefined");
  TORCH_CHECK_VALUE(
      parameter.is_floating_point() && parameter.element_size() >= 2,
      head,
      "must be of a floating-point dtype from 16 bits on, got ",
      parameter.scalar_type());
  TORCH_CHECK_VALUE(
      parameter.is_leaf(),
      head,
      "is the result of an operation, got grad_fn; give the leaf tensor");
  TORCH_CHECK_VALUE(
      parameter.layout() == at::kStrided &&
          parameter.is_non_overlapping_and_dense(),
      head,
      "must fill its memory without gaps, got strides ",
      parameter.strides(),
      " for shape ",
      parameter.sizes(),
      "; give a contiguous tensor");
}

/// What is in the optimizer already.
struct Known {
  std::unordered_set<std::string> names;
  std::unordered_set<const void*> tensors;
  std::unordered_map<const void*, std::string> memory;
};

Known known_of(const std::vector<std::unique_ptr<ParameterRecord>>& records) {
  Known known;
  for (const auto& record : records) {
    known.names.insert(record->name);
    known.tensors.insert(record->parameter.unsafeGetTensorImpl());
    if (record->parameter.numel() > 0) {
      known.memory.emplace(record->parameter.const_data_ptr(), record->name);
    }
  }
  return known;
}

void check_is_new(
    const std::string& who,
    const std::string& name,
    const at::Tensor& parameter,
    Known& known) {
  TORCH_CHECK_VALUE(
      known.names.insert(name).second,
      who,
      ": two parameters have the name '",
      name,
      "'");
  if (parameter.numel() == 0) {
    return;
  }
  const auto [place, is_new] =
      known.memory.emplace(parameter.const_data_ptr(), name);
  TORCH_CHECK_VALUE(
      is_new,
      who,
      ": parameters '",
      place->second,
      "' and '",
      name,
      "' are two tensors over the same memory, each of which would get a part "
      "of the gradient; to tie weights, register one tensor in both modules");
}

void check_counts(const std::string& who, const RawGroup& group) {
  TORCH_CHECK_VALUE(
      !group.params.empty(),
      who,
      ": the group",
      group.name.empty() ? "" : " '" + group.name + "'",
      " has 0 parameters; is the submodule registered, and were its parameters "
      "passed?");
  TORCH_CHECK_VALUE(
      group.names.empty() || group.names.size() == group.params.size(),
      who,
      ": got ",
      group.names.size(),
      " names for ",
      group.params.size(),
      " parameters");
}

} // namespace

void check_group(
    const UpdateRule& rule,
    const RawGroup& group,
    const std::vector<std::unique_ptr<ParameterRecord>>& records) {
  const std::string who = rule.name();
  check_counts(who, group);
  Known known = known_of(records);
  std::unordered_set<const void*> in_group;
  for (size_t i = 0; i < group.params.size(); ++i) {
    const at::Tensor& parameter = group.params[i];
    const std::string name =
        group.names.empty() ? std::to_string(records.size() + in_group.size())
                            : group.names[i];
    check_parameter(who, name, parameter);
    rule.check_parameter(name, parameter);
    const void* key = parameter.unsafeGetTensorImpl();
    TORCH_CHECK_VALUE(
        !known.tensors.contains(key),
        who,
        ": parameter '",
        name,
        "' is in two groups");
    if (in_group.insert(key).second) {
      check_is_new(who, name, parameter, known);
    }
  }
}

std::string describe(const ParameterRecord& record) {
  return c10::str(
      "'",
      record.name,
      "' (",
      record.parameter.scalar_type(),
      " ",
      record.parameter.sizes(),
      ")");
}

namespace {

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return (a.is_contiguous() && b.is_contiguous()) || a.strides() == b.strides();
}

} // namespace

at::Tensor usable_gradient(
    const std::string& who,
    const ParameterRecord& record,
    const at::Tensor& grad) {
  const at::Tensor& parameter = record.parameter;
  TORCH_CHECK(
      grad.layout() == at::kStrided,
      who,
      ": the gradient of parameter ",
      describe(record),
      " must be dense, got layout ",
      grad.layout(),
      "; make the embedding with sparse = false");
  TORCH_CHECK(
      grad.sizes() == parameter.sizes() &&
          grad.device() == parameter.device() && grad.is_floating_point(),
      who,
      ": the gradient of parameter ",
      describe(record),
      " on ",
      parameter.device(),
      " does not fit, got ",
      grad.scalar_type(),
      " ",
      grad.sizes(),
      " on ",
      grad.device());
  return same_layout(grad, parameter)
             ? grad
             : at::empty_like(
                   parameter, parameter.options().dtype(grad.dtype()))
                   .copy_(grad);
}

at::ScalarType state_dtype(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

namespace {

void follow(
    const std::string& who,
    const ParameterRecord& record,
    at::IntArrayRef shape,
    at::Tensor& state) {
  const at::Tensor& parameter = record.parameter;
  TORCH_CHECK(
      state.sizes() == shape,
      who,
      ": parameter ",
      describe(record),
      " had state of shape ",
      state.sizes(),
      " where it needs ",
      shape,
      " now; make a new optimizer after replacing parameters");
  const bool laid_out = shape == parameter.sizes()
                            ? same_layout(state, parameter)
                            : state.is_contiguous();
  const auto dtype = state_dtype(parameter);
  if (state.device() != parameter.device() || !laid_out ||
      state.scalar_type() != dtype) {
    state = empty_state(parameter, shape, dtype).copy_(state);
  }
}

void follow_step(ParameterRecord& record) {
  at::Tensor& tensor = record.step_tensor;
  if (record.parameter.is_cpu()) {
    record.step = steps_taken(record);
    if (tensor.defined() && !tensor.is_cpu()) {
      tensor.reset();
    }
    return;
  }
  const auto options = record.parameter.options().dtype(at::kFloat);
  tensor = tensor.defined() && !tensor.is_cpu()
               ? tensor.to(options)
               : at::full({}, static_cast<double>(record.step), options);
}

} // namespace

at::Tensor empty_state(
    const at::Tensor& parameter, at::IntArrayRef shape, at::ScalarType dtype) {
  const auto options = parameter.options().dtype(dtype).requires_grad(false);
  auto state = shape == parameter.sizes() ? at::empty_like(parameter, options)
                                          : at::empty(shape, options);
  if (state.is_cpu()) {
    advise_huge_pages(state.mutable_data_ptr(), state.nbytes());
  }
  return state;
}

void make_master(ParameterRecord& record) {
  const at::Tensor& parameter = record.parameter;
  record.master =
      empty_state(parameter, parameter.sizes(), at::kFloat).copy_(parameter);
}

void prepare_state(
    const UpdateRule& rule,
    ParameterRecord& record,
    const torch::optim::OptimizerOptions& options,
    bool keep_master) {
  const at::Tensor& parameter = record.parameter;
  if (!keep_master || !needs_master(parameter)) {
    record.master.reset();
  } else if (!record.master.defined()) {
    make_master(record);
  } else {
    follow(rule.name(), record, parameter.sizes(), record.master);
  }
  record.moments.resize(rule.moment_names().size());
  for (size_t i = 0; i < record.moments.size(); ++i) {
    if (record.moments[i].defined()) {
      follow(
          rule.name(),
          record,
          rule.moment_shape(i, parameter),
          record.moments[i]);
    }
  }
  for (const size_t i : rule.moments_used(options, parameter)) {
    if (!record.moments[i].defined()) {
      record.moments[i] = empty_state(
                              parameter,
                              rule.moment_shape(i, parameter),
                              state_dtype(parameter))
                              .fill_(rule.initial_moment(options));
    }
  }
  follow_step(record);
}

int64_t steps_taken(const ParameterRecord& record) {
  const bool on_device =
      record.step_tensor.defined() && !record.step_tensor.is_cpu();
  return on_device ? record.step_tensor.item<int64_t>() // waits
                   : record.step;
}

bool has_own_kernel(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16);
}

kernels::Float float_type(at::ScalarType type) {
  return type == at::kHalf       ? kernels::Float::fp16
         : type == at::kBFloat16 ? kernels::Float::bf16
                                 : kernels::Float::fp32;
}

} // namespace ampkit::optim
