#include <ampkit/optim/lamb.h>

#include <cmath>

#include <ATen/ATen.h>

#include "kernels/optim_lamb.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class LAMBRule;
} // namespace

template <>
struct OptionTraits<LAMBOptions> {
  static constexpr const char* kName = "LAMB";
  using Rule = LAMBRule;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("betas.first", o.betas.first, kBelowOne);
    field("betas.second", o.betas.second, kBelowOne);
    field("eps", o.eps, kNotNegative);
    field("weight_decay", o.weight_decay, kNotNegative);
    field("bias_correction", o.bias_correction);
    field("maximize", o.maximize);
  }
};

namespace {

kernels::LambFactors factors_of(const LAMBOptions& o, int64_t step) {
  const auto t = static_cast<double>(step);
  const double c1 = o.bias_correction ? 1 - std::pow(o.betas.first, t) : 1;
  const double c2 = o.bias_correction ? 1 - std::pow(o.betas.second, t) : 1;
  return {
      .beta1 = static_cast<float>(o.betas.first),
      .one_minus_beta1 = static_cast<float>(1 - o.betas.first),
      .beta2 = static_cast<float>(o.betas.second),
      .one_minus_beta2 = static_cast<float>(1 - o.betas.second),
      .first_factor = static_cast<float>(1 / c1),
      .root_factor = static_cast<float>(1 / std::sqrt(c2)),
      .eps = static_cast<float>(o.eps),
      .weight_decay = static_cast<float>(o.weight_decay)};
}

double trust_ratio(const kernels::LambSums& sums) {
  return sums.weight_squares > 0 && sums.direction_squares > 0
             ? std::sqrt(sums.weight_squares / sums.direction_squares)
             : 1;
}

/// 1 - `beta`^t, fp64 [], on the device of `step`.
at::Tensor bias_correction(double beta, const at::Tensor& step) {
  return 1 - at::pow(beta, step.to(at::kDouble));
}

class LAMBRule : public TypedRule<LAMBOptions> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions&, const at::Tensor&) const override {
    return {0, 1};
  }

  bool has_own_kernel(const at::Tensor&) const override { return true; }

  // Two sweeps: a trust ratio is known only when all of its parameter was read.
  void update_on_cpu(
      std::span<const Work> works, const GradientUse& use) override {
    std::vector<kernels::LambFactors> factors;
    std::vector<LAMBOptions> options;
    for (const Work& work : works) {
      options.push_back(options_of<LAMBOptions>(*work.options));
      factors.push_back(factors_of(options.back(), work.record->step + 1));
    }
    const auto spans =
        update_spans(works, use, [&](size_t i) { return options[i].maximize; });
    const auto chunks = split_into_chunks(works);
    std::vector<kernels::LambSums> parts(chunks.size());
    for_each_chunk(chunks, /*backward=*/true, [&](size_t c) {
      parts[c] = kernels::lamb_moments(
          factors[chunks[c].work], run_of(spans, chunks[c]));
    });
    std::vector<kernels::LambSums> sums(works.size());
    for (size_t c = 0; c < chunks.size(); ++c) { // one order for any threads
      auto& sum = sums[chunks[c].work];
      sum.weight_squares += parts[c].weight_squares;
      sum.direction_squares += parts[c].direction_squares;
    }
    for_each_chunk(chunks, /*backward=*/false, [&](size_t c) {
      const size_t i = chunks[c].work;
      kernels::lamb_apply(
          factors[i],
          static_cast<float>(options[i].lr * trust_ratio(sums[i])),
          run_of(spans, chunks[c]));
    });
  }

  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<LAMBOptions>(*batch.options);
    for (size_t i = 0; i < batch.records.size(); ++i) {
      const ParameterRecord& record = *batch.records[i];
      const at::Tensor& weight = batch.weights[i];
      const auto grad = o.maximize ? batch.grads[i].neg() : batch.grads[i];
      const auto& first = record.moments[0];
      const auto& second = record.moments[1];
      first.mul_(o.betas.first).add_(grad, 1 - o.betas.first);
      second.mul_(o.betas.second).addcmul_(grad, grad, 1 - o.betas.second);
      auto direction =
          o.bias_correction
              ? (first / bias_correction(o.betas.first, record.step_tensor))
                    .div_((second /
                           bias_correction(o.betas.second, record.step_tensor))
                              .sqrt_()
                              .add_(o.eps))
              : first / second.sqrt().add_(o.eps);
      if (o.weight_decay != 0) {
        direction.add_(weight, o.weight_decay);
      }
      const auto weight_norm = weight.norm();
      const auto norm = direction.norm();
      const auto trust = at::where(
          (weight_norm > 0).logical_and_(norm > 0),
          weight_norm / norm,
          at::ones_like(norm));
      weight.sub_(direction.mul_(trust), o.lr);
    }
  }
};

} // namespace

template class TypedOptimizer<LAMBOptions>;

} // namespace ampkit::optim
