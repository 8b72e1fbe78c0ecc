#include <ampkit/optim/lion.h>

#include <ATen/ATen.h>

#include "kernels/optim_lion.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class LionRule;
} // namespace

template <>
struct OptionTraits<LionOptions> {
  static constexpr const char* kName = "Lion";
  using Rule = LionRule;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("betas.first", o.betas.first, kBelowOne);
    field("betas.second", o.betas.second, kBelowOne);
    field("weight_decay", o.weight_decay, kNotNegative);
    field("maximize", o.maximize);
  }
};

namespace {

class LionRule : public ElementwiseRule<LionOptions, kernels::LionFactors> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"exp_avg"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions&, const at::Tensor&) const override {
    return {0};
  }

  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<LionOptions>(*batch.options);
    for (size_t i = 0; i < batch.records.size(); ++i) {
      const auto grad = o.maximize ? batch.grads[i].neg() : batch.grads[i];
      const at::Tensor& average = batch.records[i]->moments[0];
      const auto direction =
          average.mul(o.betas.first).add_(grad, 1 - o.betas.first);
      average.mul_(o.betas.second).add_(grad, 1 - o.betas.second);
      // A sign is 0 for NaN; the weight must show it.
      const auto step =
          at::where(direction.isnan(), direction, direction.sign());
      batch.weights[i].mul_(1 - o.lr * o.weight_decay).add_(step, -o.lr);
    }
  }

 protected:
  kernels::LionFactors factors_of(
      const LionOptions& o, const ParameterRecord&) const override {
    return {
        .beta1 = static_cast<float>(o.betas.first),
        .one_minus_beta1 = static_cast<float>(1 - o.betas.first),
        .beta2 = static_cast<float>(o.betas.second),
        .one_minus_beta2 = static_cast<float>(1 - o.betas.second),
        .decay = static_cast<float>(1 - o.lr * o.weight_decay),
        .lr = static_cast<float>(o.lr)};
  }

  void update_run(const kernels::LionFactors& factors, kernels::UpdateSpan run)
      const override {
    kernels::lion_update(factors, run);
  }
};

} // namespace

template class TypedOptimizer<LionOptions>;

} // namespace ampkit::optim
