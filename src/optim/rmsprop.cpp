#include <ampkit/optim/rmsprop.h>

#include <ATen/ATen.h>
#include <torch/optim/rmsprop.h>

#include "kernels/optim_rmsprop.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {
namespace {
class RMSpropRule;
} // namespace

template <>
struct OptionTraits<RMSpropOptions> {
  static constexpr const char* kName = "RMSprop";
  using Rule = RMSpropRule;
  using Torch = torch::optim::RMSpropOptions;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    field("lr", o.lr, kNotNegative);
    field("alpha", o.alpha, kBelowOne);
    field("eps", o.eps, kNotNegative);
    field("weight_decay", o.weight_decay, kNotNegative);
    field("momentum", o.momentum, kNotNegative);
    field("centered", o.centered);
    field("maximize", o.maximize);
  }
  static void to_torch(const RMSpropOptions& from, Torch& to) {
    to.lr(from.lr);
    to.alpha(from.alpha);
    to.eps(from.eps);
    to.weight_decay(from.weight_decay);
    to.momentum(from.momentum);
    to.centered(from.centered);
  }
  static void from_torch(const Torch& from, RMSpropOptions& to) {
    to.lr = from.lr();
    to.alpha = from.alpha();
    to.eps = from.eps();
    to.weight_decay = from.weight_decay();
    to.momentum = from.momentum();
    to.centered = from.centered();
  }
};

namespace {

class RMSpropRule
    : public ElementwiseRule<RMSpropOptions, kernels::RmspropFactors> {
 public:
  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{
        "square_avg", "momentum_buffer", "grad_avg"};
    return names;
  }

  std::vector<size_t> moments_used(
      const OptimizerOptions& options, const at::Tensor&) const override {
    const auto o = options_of<RMSpropOptions>(options);
    std::vector<size_t> used{0};
    if (o.momentum > 0) {
      used.push_back(1);
    }
    if (o.centered) {
      used.push_back(2);
    }
    return used;
  }

  // torch.optim.RMSprop's operations, in its order: LibTorch has no fused one.
  void update_stock(const StockBatch& batch) const override {
    const auto o = options_of<RMSpropOptions>(*batch.options);
    for (size_t i = 0; i < batch.records.size(); ++i) {
      const at::Tensor& weight = batch.weights[i];
      const auto& moments = batch.records[i]->moments;
      auto grad = o.maximize ? batch.grads[i].neg() : batch.grads[i];
      if (o.weight_decay != 0) {
        grad = grad.add(weight, o.weight_decay);
      }
      const at::Tensor& square = moments[0];
      square.mul_(o.alpha).addcmul_(grad, grad, 1 - o.alpha);
      if (o.centered) {
        moments[2].lerp_(grad, 1 - o.alpha);
      }
      const auto root = o.centered
                            ? square.addcmul(moments[2], moments[2], -1).sqrt_()
                            : square.sqrt();
      root.add_(o.eps);
      if (o.momentum > 0) {
        moments[1].mul_(o.momentum).addcdiv_(grad, root);
        weight.add_(moments[1], -o.lr);
      } else {
        weight.addcdiv_(grad, root, -o.lr);
      }
    }
  }

 protected:
  kernels::RmspropFactors factors_of(
      const RMSpropOptions& o, const ParameterRecord&) const override {
    return {
        .weight_decay = static_cast<float>(o.weight_decay),
        .alpha = static_cast<float>(o.alpha),
        .one_minus_alpha = static_cast<float>(1 - o.alpha),
        .momentum = static_cast<float>(o.momentum),
        .lr = static_cast<float>(o.lr),
        .eps = static_cast<float>(o.eps),
        .centered = o.centered};
  }

  void update_run(
      const kernels::RmspropFactors& factors,
      kernels::UpdateSpan run) const override {
    kernels::rmsprop_update(factors, run);
  }
};

} // namespace

template class TypedOptimizer<RMSpropOptions>;

} // namespace ampkit::optim
