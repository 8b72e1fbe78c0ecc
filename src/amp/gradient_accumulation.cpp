#include <ampkit/amp/gradient_accumulation.h>

#include <cmath>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>

#include "amp/gradients.h"

namespace ampkit {
namespace {

bool is_16_bit(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf ||
         tensor.scalar_type() == at::kBFloat16;
}

std::vector<at::Tensor> each_once(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> once;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      once.push_back(tensor);
    }
  }
  return once;
}

double power_of_two_at_least(double value) {
  return std::exp2(std::ceil(std::log2(value)));
}

std::vector<Gradient> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<Gradient> gradients;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& grad = parameter.grad();
    if (grad.defined()) {
      gradients.push_back(
          {.values = grad.is_sparse() ? grad._values() : grad,
           .parameter = parameter});
    }
  }
  return gradients;
}

} // namespace

GradientAccumulation::GradientAccumulation(
    const std::vector<at::Tensor>& parameters,
    GradientAccumulationOptions options)
    : parameters_(each_once(parameters)), options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      options_.micro_batches >= 1,
      "GradientAccumulation: micro_batches must be >= 1, got ",
      options_.micro_batches);
  TORCH_CHECK_VALUE(
      options_.expected_count >= 0,
      "GradientAccumulation: expected_count must be >= 0, got ",
      options_.expected_count);
  TORCH_CHECK_VALUE(
      !options_.sum_over_ranks || options_.expected_count > 0,
      "GradientAccumulation: sum_over_ranks needs expected_count > 0, the same "
      "on all ranks");
  TORCH_CHECK_VALUE(
      options_.averaged_over >= 1,
      "GradientAccumulation: averaged_over must be >= 1, got ",
      options_.averaged_over);
  begin();
  if (!options_.fp32_gradients) {
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    TORCH_CHECK(
        !is_16_bit(parameter) || !parameter.grad().defined() ||
            parameter.grad().scalar_type() == at::kFloat,
        "GradientAccumulation: parameter ",
        i,
        " (",
        parameter.scalar_type(),
        " ",
        parameter.sizes(),
        ") already has a 16-bit gradient; clear the gradients first, or set "
        "fp32_gradients to false");
  }
  for (const at::Tensor& parameter : parameters_) {
    if (is_16_bit(parameter) && parameter.is_leaf() &&
        parameter.grad_dtype() != at::kFloat) {
      parameter.set_grad_dtype(at::kFloat);
      widened_.push_back(parameter);
    }
  }
}

GradientAccumulation::~GradientAccumulation() {
  for (const at::Tensor& parameter : widened_) {
    if (!parameter.grad().defined()) {
      parameter.set_grad_dtype(parameter.scalar_type());
    }
  }
}

at::Tensor GradientAccumulation::weigh(
    const at::Tensor& loss_sum, int64_t count) {
  TORCH_CHECK_VALUE(
      count >= 0,
      "GradientAccumulation::weigh: count must be >= 0, got ",
      count);
  TORCH_CHECK(
      !full(),
      "GradientAccumulation::weigh: the window already has its ",
      options_.micro_batches,
      " micro-batches; call finish() or abandon()");
  if (nominal_ == 0 && count > 0) {
    nominal_ = power_of_two_at_least(
        static_cast<double>(count) *
        static_cast<double>(options_.micro_batches));
  }
  ++micro_batches_;
  count_ += count;
  const bool narrow = loss_sum.element_size() < 4;
  return (narrow ? loss_sum.to(at::kFloat) : loss_sum) *
         (nominal_ == 0
              ? 1.0
              : static_cast<double>(options_.averaged_over) / nominal_);
}

at::Tensor GradientAccumulation::weigh_mean(
    const at::Tensor& loss_mean, int64_t count) {
  TORCH_CHECK_VALUE(
      count > 0,
      "GradientAccumulation::weigh_mean: count must be > 0, got ",
      count,
      "; leave such a batch out, or weigh() its sum");
  const bool narrow = loss_mean.element_size() < 4;
  const auto wide = narrow ? loss_mean.to(at::kFloat) : loss_mean;
  return weigh(wide * static_cast<double>(count), count);
}

bool GradientAccumulation::full() const {
  return micro_batches_ >= options_.micro_batches;
}

void GradientAccumulation::finish() {
  auto total = at::scalar_tensor(count_, at::TensorOptions(at::kLong));
  if (options_.sum_over_ranks) {
    total = options_.sum_over_ranks(total);
  } else {
    TORCH_CHECK(
        count_ > 0,
        "GradientAccumulation::finish: no sample was counted in ",
        micro_batches_,
        " micro-batches; call abandon() for a window of padding only");
  }
  if (nominal_ != 0) {
    multiply_(
        gradients_of(parameters_),
        (nominal_ / total.to(at::kDouble)).to(at::kFloat));
  }
  begin();
}

void GradientAccumulation::abandon() {
  for (const at::Tensor& parameter : parameters_) {
    parameter.mutable_grad().reset();
  }
  begin();
}

void GradientAccumulation::begin() {
  nominal_ =
      options_.expected_count > 0
          ? power_of_two_at_least(static_cast<double>(options_.expected_count))
          : 0;
  count_ = 0;
  micro_batches_ = 0;
}

} // namespace ampkit
