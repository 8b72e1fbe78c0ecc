#include <ampkit/optim/adagrad.h>

#include <ATen/ops/_fused_adagrad.h>
#include <torch/optim/adagrad.h>

#include "kernels/optim_adagrad.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class AdagradRule;
} // namespace

template <>
struct OptionTraits<AdagradOptions> {
  static constexpr const char* kName = "Adagrad";
  using Rule = AdagradRule;
  using Torch = torch::optim::AdagradOptions;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("lr_decay", o.lr_decay, kNotNegative);
    field("weight_decay", o.weight_decay, kNotNegative);
    field(
        "initial_accumulator_value", o.initial_accumulator_value, kNotNegative);
    field("eps", o.eps, kNotNegative);
    field("maximize", o.maximize);
  }
  static void to_torch(const AdagradOptions& from, Torch& to) {
    to.lr(from.lr);
    to.lr_decay(from.lr_decay);
    to.weight_decay(from.weight_decay);
    to.initial_accumulator_value(from.initial_accumulator_value);
    to.eps(from.eps);
  }
  static void from_torch(const Torch& from, AdagradOptions& to) {
    to.lr = from.lr();
    to.lr_decay = from.lr_decay();
    to.weight_decay = from.weight_decay();
    to.initial_accumulator_value = from.initial_accumulator_value();
    to.eps = from.eps();
  }
};

namespace {

class AdagradRule
    : public ElementwiseRule<AdagradOptions, kernels::AdagradFactors> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"sum"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions&, const at::Tensor&) const override {
    return {0};
  }

  double initial_moment(const OptimizerOptions& options) const override {
    return options_of<AdagradOptions>(options).initial_accumulator_value;
  }

  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<AdagradOptions>(*batch.options);
    at::_fused_adagrad_(
        batch.weights,
        batch.grads,
        batch.moments(0),
        batch.steps(),
        o.lr,
        o.lr_decay,
        o.weight_decay,
        o.eps,
        o.maximize);
  }

 protected:
  kernels::AdagradFactors factors_of(
      const AdagradOptions& o, const ParameterRecord& record) const override {
    const auto before = static_cast<double>(record.step);
    return {
        .weight_decay = static_cast<float>(o.weight_decay),
        .step_size = static_cast<float>(o.lr / (1 + before * o.lr_decay)),
        .eps = static_cast<float>(o.eps)};
  }

  void update_run(
      const kernels::AdagradFactors& factors,
      kernels::UpdateSpan run) const override {
    kernels::adagrad_update(factors, run);
  }
};

} // namespace

template class TypedOptimizer<AdagradOptions>;

} // namespace ampkit::optim
