#include <ampkit/optim/adafactor.h>

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "optim/adafactor_pass.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class AdafactorRule;
} // namespace

template <>
struct OptionTraits<AdafactorOptions> {
  static constexpr const char* kName = "Adafactor";
  using Rule = AdafactorRule;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("beta2_decay", o.beta2_decay, kFinite);
    field("eps.first", o.eps.first, kNotNegative);
    field("eps.second", o.eps.second, kNotNegative);
    field("d", o.d, Range{1});
    field("weight_decay", o.weight_decay, kNotNegative);
    field("maximize", o.maximize);
  }
  static void check(const AdafactorOptions& o) {
    TORCH_CHECK_VALUE(
        o.beta2_decay <= 0,
        "Adafactor: beta2_decay must be <= 0, got ",
        o.beta2_decay);
  }
};

namespace {

enum StateIndex : size_t { kRowVar, kColVar, kVariance };

double least_root(const AdafactorOptions& o, at::ScalarType dtype) {
  const double spacing = dtype == at::kDouble
                             ? std::numeric_limits<double>::epsilon()
                             : std::numeric_limits<float>::epsilon();
  return o.eps.first.value_or(spacing);
}

at::Tensor mean_of_squares(const at::Tensor& grad, int64_t dim) {
  return at::linalg_vector_norm(grad, 2, dim, /*keepdim=*/true)
      .square_()
      .div_(grad.size(dim));
}

/// Brings the variances of `record` up to date and estimates that of each
/// element. `forgetting`: the weight of this step.
at::Tensor variance_estimate(
    const ParameterRecord& record,
    const at::Tensor& grad,
    const at::Tensor& forgetting,
    double eps1) {
  if (grad.dim() <= 1) {
    return record.moments[kVariance].lerp_(grad * grad, forgetting).clone();
  }
  const at::Tensor& row = record.moments[kRowVar];
  const at::Tensor& col = record.moments[kColVar];
  row.lerp_(mean_of_squares(grad, -1), forgetting);
  col.lerp_(mean_of_squares(grad, -2), forgetting);
  return row.matmul(col).div_(row.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
}

class AdafactorRule : public TypedRule<AdafactorOptions> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{
        "row_var", "col_var", "variance"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions&, const at::Tensor& parameter) const override {
    return parameter.dim() > 1 ? std::vector<size_t>{kRowVar, kColVar}
                               : std::vector<size_t>{kVariance};
  }

  std::vector<int64_t> moment_shape(
      size_t i, const at::Tensor& parameter) const override {
    auto shape = parameter.sizes().vec();
    if (shape.size() > 1 && i != kVariance) {
      shape[shape.size() - (i == kRowVar ? 1 : 2)] = 1;
    }
    return shape;
  }

  // Short rows and few columns cost the kernels more than LibTorch's ops.
  bool has_own_kernel(const at::Tensor& parameter) const override {
    return parameter.dim() == 2 && parameter.is_contiguous() &&
           parameter.size(1) >= 16;
  }

  void update_on_cpu(
      std::span<const Work> works, const GradientUse& use) override {
    std::vector<AdafactorOptions> options;
    for (const Work& work : works) {
      options.push_back(options_of<AdafactorOptions>(*work.options));
    }
    const auto spans =
        update_spans(works, use, [&](size_t i) { return options[i].maximize; });
    std::vector<AdafactorMatrix> matrices;
    for (size_t i = 0; i < works.size(); ++i) {
      matrices.push_back(matrix_of(options[i], *works[i].record, spans[i]));
    }
    update_matrices(matrices);
  }

  // torch.optim.Adafactor's operations, in its order, with the numbers that it
  // takes from the device to the host left where they are.
  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<AdafactorOptions>(*batch.options);
    for (size_t i = 0; i < batch.records.size(); ++i) {
      const auto grad = o.maximize ? batch.grads[i].neg() : batch.grads[i];
      update_one(o, *batch.records[i], batch.weights[i], grad);
    }
  }

 private:
  static AdafactorMatrix matrix_of(
      const AdafactorOptions& o,
      const ParameterRecord& record,
      const kernels::UpdateSpan& span) {
    const auto step = static_cast<double>(record.step + 1);
    return {
        .span = span,
        .rows = static_cast<size_t>(record.parameter.size(0)),
        .columns = static_cast<size_t>(record.parameter.size(1)),
        .row_var = span.first,
        .col_var = span.second,
        .forgetting = std::pow(step, o.beta2_decay),
        .eps1 = least_root(o, at::kFloat),
        .eps2 = o.eps.second,
        .d = o.d,
        .rho = std::min(o.lr, 1 / std::sqrt(step)),
        .decay = 1 - o.lr * o.weight_decay};
  }

  static void update_one(
      const AdafactorOptions& o,
      const ParameterRecord& record,
      const at::Tensor& weight,
      const at::Tensor& grad) {
    const auto dtype = weight.scalar_type();
    const double eps1 = least_root(o, dtype);
    const double root = std::sqrt(static_cast<double>(weight.numel()));
    const auto step = record.step_tensor.to(at::kDouble);
    const auto alpha = (weight.norm().to(at::kDouble) / root)
                           .clamp_min_(o.eps.second)
                           .mul_(step.rsqrt().clamp_max_(o.lr));
    if (o.weight_decay != 0) {
      weight.mul_(1 - o.lr * o.weight_decay);
    }
    const auto update =
        variance_estimate(record, grad, step.pow(o.beta2_decay).to(dtype), eps1)
            .clamp_min_(eps1 * eps1)
            .rsqrt_()
            .mul_(grad);
    const auto length =
        (update.norm().to(at::kDouble) / (root * o.d)).clamp_min_(1);
    weight.sub_(update.mul_((alpha / length).to(dtype)));
  }
};

} // namespace

template class TypedOptimizer<AdafactorOptions>;

} // namespace ampkit::optim
