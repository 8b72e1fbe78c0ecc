#include <ampkit/optim/muon.h>

#include <cmath>

#include <ATen/ATen.h>

#include "kernels/cpu_16bit.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class MuonRule;
} // namespace

template <>
struct OptionTraits<MuonOptions> {
  static constexpr const char* kName = "Muon";
  using Rule = MuonRule;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("weight_decay", o.weight_decay, kNotNegative);
    field("momentum", o.momentum, kNotNegative);
    field("nesterov", o.nesterov);
    field("ns_coefficients.0", o.ns_coefficients[0], kFinite);
    field("ns_coefficients.1", o.ns_coefficients[1], kFinite);
    field("ns_coefficients.2", o.ns_coefficients[2], kFinite);
    field("eps", o.eps, kNotNegative);
    field("ns_steps", o.ns_steps, Range{0, 100});
    field("adjust_lr_fn", o.adjust_lr_fn);
  }
  static void check(const MuonOptions& o) {
    TORCH_CHECK_VALUE(
        o.adjust_lr_fn == AdjustLr::original ||
            o.adjust_lr_fn == AdjustLr::match_rms_adamw,
        "Muon: adjust_lr_fn must be AdjustLr::original or match_rms_adamw, got "
        "number ",
        static_cast<int>(o.adjust_lr_fn));
  }
};

namespace {

/// A matrix of numbers that bf16 has, in the dtype in which the products are
/// fastest: bf16, or fp32 on processors without units for bf16.
class RoundedMatrices {
 public:
  explicit RoundedMatrices(bool in_fp32) : in_fp32_(in_fp32) {}

  at::Tensor round(const at::Tensor& matrix) const {
    const auto rounded = matrix.to(at::kBFloat16);
    return in_fp32_ ? rounded.to(at::kFloat) : rounded;
  }

 private:
  bool in_fp32_;
};

/// torch.optim.Muon's operations, in its order: the nearest matrix whose
/// singular values are all about 1.
at::Tensor orthogonalized(
    const at::Tensor& matrix, const MuonOptions& o, bool in_fp32) {
  const RoundedMatrices rounded(in_fp32);
  const auto [a, b, c] = o.ns_coefficients;
  const bool tall = matrix.size(0) > matrix.size(1);
  auto x = rounded.round(matrix);
  x = tall ? x.t() : x;
  // The norm is one of bf16 numbers, itself rounded to bf16.
  x = rounded.round(x.div_(rounded.round(x.norm()).clamp_min(o.eps)));
  for (int64_t i = 0; i < o.ns_steps; ++i) {
    const auto gram = rounded.round(x.mm(x.t()));
    const auto update = rounded.round(at::addmm(gram, gram, gram, b, c));
    x = rounded.round(at::addmm(x, update, x, a));
  }
  return tall ? x.t() : x;
}

double adjusted_lr(const MuonOptions& o, const at::Tensor& parameter) {
  const auto rows = static_cast<double>(parameter.size(0));
  const auto columns = static_cast<double>(parameter.size(1));
  return o.adjust_lr_fn == AdjustLr::original
             ? o.lr * std::sqrt(std::max(1.0, rows / columns))
             : o.lr * 0.2 * std::sqrt(std::max(rows, columns));
}

class MuonRule : public TypedRule<MuonOptions> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"momentum_buffer"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions&, const at::Tensor&) const override {
    return {0};
  }

  void check_parameter(
      const std::string& name, const at::Tensor& parameter) const override {
    TORCH_CHECK_VALUE(
        parameter.dim() == 2,
        "Muon: parameter '",
        name,
        "' must have 2 dimensions, got shape ",
        parameter.sizes(),
        "; give it to another optimizer, such as AdamW");
  }

  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<MuonOptions>(*batch.options);
    for (size_t i = 0; i < batch.records.size(); ++i) {
      const at::Tensor& weight = batch.weights[i];
      const at::Tensor& grad = batch.grads[i];
      const at::Tensor& buffer = batch.records[i]->moments[0];
      buffer.lerp_(grad, 1 - o.momentum);
      const auto update = o.nesterov ? grad.lerp(buffer, o.momentum) : buffer;
      const bool in_fp32 = o.kernel != Kernel::stock && weight.is_cpu() &&
                           kernels::cpu_16bit_route(at::kBFloat16) ==
                               kernels::Cpu16BitRoute::through_fp32;
      weight.mul_(1 - o.lr * o.weight_decay);
      weight.add_(orthogonalized(update, o, in_fp32), -adjusted_lr(o, weight));
    }
  }
};

} // namespace

template class TypedOptimizer<MuonOptions>;

} // namespace ampkit::optim
