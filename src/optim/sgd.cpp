#include <ampkit/optim/sgd.h>

#include <ATen/ops/_fused_sgd.h>
#include <torch/optim/sgd.h>

#include "kernels/optim_sgd.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class SGDRule;
} // namespace

template <>
struct OptionTraits<SGDOptions> {
  static constexpr const char* kName = "SGD";
  using Rule = SGDRule;
  using Torch = torch::optim::SGDOptions;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("momentum", o.momentum, kNotNegative);
    field("dampening", o.dampening, kFinite);
    field("weight_decay", o.weight_decay, kNotNegative);
    field("nesterov", o.nesterov);
    field("maximize", o.maximize);
  }
  static void check(const SGDOptions& o) {
    TORCH_CHECK_VALUE(
        !o.nesterov || (o.momentum > 0 && o.dampening == 0),
        "SGD: nesterov needs momentum > 0 and dampening 0, got momentum ",
        o.momentum,
        " and dampening ",
        o.dampening);
  }
  static void to_torch(const SGDOptions& from, Torch& to) {
    to.lr(from.lr);
    to.momentum(from.momentum);
    to.dampening(from.dampening);
    to.weight_decay(from.weight_decay);
    to.nesterov(from.nesterov);
  }
  static void from_torch(const Torch& from, SGDOptions& to) {
    to.lr = from.lr();
    to.momentum = from.momentum();
    to.dampening = from.dampening();
    to.weight_decay = from.weight_decay();
    to.nesterov = from.nesterov();
  }
};

namespace {

class SGDRule : public ElementwiseRule<SGDOptions, kernels::SgdFactors> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"momentum_buffer"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions& options, const at::Tensor&) const override {
    return options_of<SGDOptions>(options).momentum != 0
               ? std::vector<size_t>{0}
               : std::vector<size_t>{};
  }

  bool may_lack_moments() const override { return true; }

  bool first_step_differs(const OptimizerOptions& options) const override {
    const auto o = options_of<SGDOptions>(options);
    return o.momentum != 0 && o.dampening != 0;
  }

  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<SGDOptions>(*batch.options);
    const ParameterRecord& first = *batch.records.front();
    // Where only the device knows whether this step is taken, a buffer of zeros
    // serves as a new one: the same unless there is dampening.
    const bool is_first = first.fresh && (first.parameter.is_cpu() ||
                                          first_step_differs(*batch.options));
    at::_fused_sgd_(
        batch.weights,
        batch.grads,
        o.momentum != 0 ? batch.moments(0) : std::vector<at::Tensor>(),
        o.weight_decay,
        o.momentum,
        o.lr,
        o.dampening,
        o.nesterov,
        o.maximize,
        is_first,
        /*grad_scale=*/{},
        batch.optional_found_inf());
  }

  bool stock_skips_by_itself() const override { return true; }

 protected:
  kernels::SgdFactors factors_of(
      const SGDOptions& o, const ParameterRecord& record) const override {
    return {
        .weight_decay = static_cast<float>(o.weight_decay),
        .momentum = static_cast<float>(o.momentum),
        .one_minus_dampening = static_cast<float>(1 - o.dampening),
        .lr = static_cast<float>(o.lr),
        .nesterov = o.nesterov,
        .first_step = record.fresh};
  }

  void update_run(const kernels::SgdFactors& factors, kernels::UpdateSpan run)
      const override {
    if (factors.momentum == 0) {
      run.first = nullptr; // kept from when there was momentum
    }
    kernels::sgd_update(factors, run);
  }
};

} // namespace

template class TypedOptimizer<SGDOptions>;

} // namespace ampkit::optim
