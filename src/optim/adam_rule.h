#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include "kernels/optim_adam.h"
#include "optim/typed_rule.h"

namespace ampkit::optim {

/// Adam and AdamW, which differ in what weight_decay means.
template <class Options>
class AdamRule : public ElementwiseRule<Options, kernels::AdamFactors> {
 public:
  static constexpr bool kDecoupled = OptionTraits<Options>::kDecoupled;

  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{
        "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions& options, const at::Tensor&) const override {
    return options_of<Options>(options).amsgrad ? std::vector<size_t>{0, 1, 2}
                                                : std::vector<size_t>{0, 1};
  }

  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<Options>(*batch.options);
    constexpr auto fused = kDecoupled ? at::_ops::_fused_adamw_::call
                                      : at::_ops::_fused_adam_::call;
    const auto maxima =
        o.amsgrad ? batch.moments(2) : std::vector<at::Tensor>();
    fused(
        batch.weights,
        batch.grads,
        batch.moments(0),
        batch.moments(1),
        maxima,
        batch.steps(),
        o.lr,
        o.betas.first,
        o.betas.second,
        o.weight_decay,
        o.eps,
        o.amsgrad,
        o.maximize,
        /*grad_scale=*/{},
        batch.optional_found_inf());
  }

  bool stock_skips_by_itself() const override { return true; }

 protected:
  kernels::AdamFactors factors_of(
      const Options& o, const ParameterRecord& record) const override {
    const auto t = static_cast<double>(record.step + 1);
    const double root = std::sqrt(1 - std::pow(o.betas.second, t));
    const double correction1 = 1 - std::pow(o.betas.first, t);
    kernels::AdamFactors factors{
        .one_minus_beta1 = static_cast<float>(1 - o.betas.first),
        .beta2 = static_cast<float>(o.betas.second),
        .one_minus_beta2 = static_cast<float>(1 - o.betas.second),
        .step_size = static_cast<float>(o.lr * root / correction1),
        .eps = static_cast<float>(o.eps * root),
        .amsgrad = o.amsgrad};
    if (kDecoupled) {
      factors.decay = static_cast<float>(1 - o.lr * o.weight_decay);
    } else {
      factors.penalty = static_cast<float>(o.weight_decay);
    }
    return factors;
  }

  void update_run(const kernels::AdamFactors& factors, kernels::UpdateSpan run)
      const override {
    kernels::adam_update(factors, run);
  }
};

/// The fields that Adam and AdamW share.
template <class O, class Field>
void visit_adam_fields(O& o, Field field) {
  field("lr", o.lr, kNotNegative);
  field("betas.first", o.betas.first, kBelowOne);
  field("betas.second", o.betas.second, kBelowOne);
  field("eps", o.eps, kNotNegative);
  field("weight_decay", o.weight_decay, kNotNegative);
  field("amsgrad", o.amsgrad);
  field("maximize", o.maximize);
}

template <class Options, class Torch>
void adam_to_torch(const Options& from, Torch& to) {
  to.lr(from.lr);
  to.betas({from.betas.first, from.betas.second});
  to.eps(from.eps);
  to.weight_decay(from.weight_decay);
  to.amsgrad(from.amsgrad);
}

template <class Torch, class Options>
void adam_from_torch(const Torch& from, Options& to) {
  to.lr = from.lr();
  to.betas = {std::get<0>(from.betas()), std::get<1>(from.betas())};
  to.eps = from.eps();
  to.weight_decay = from.weight_decay();
  to.amsgrad = from.amsgrad();
}

} // namespace ampkit::optim
