#include <ampkit/optim/sgd.h>

#include <limits>

#include <ATen/ops/_fused_sgd.h>
#include <c10/util/Exception.h>
#include <torch/optim/sgd.h>

#include "kernels/optim_sgd.h"
#include "optim/update_rule.h"

namespace ampkit::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// torch's options plus ours.
struct GroupOptions : torch::optim::SGDOptions {
  using torch::optim::SGDOptions::SGDOptions;
  Kernel kernel = Kernel::automatic;

  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<GroupOptions>(*this);
  }
};

const torch::optim::SGDOptions& typed(const OptimizerOptions& options) {
  const auto* typed = dynamic_cast<const torch::optim::SGDOptions*>(&options);
  TORCH_CHECK(
      typed != nullptr,
      "SGD: a parameter group has another optimizer's options; add groups "
      "with SGD::add_param_group");
  return *typed;
}

std::unique_ptr<GroupOptions> to_group_options(const SGDOptions& options) {
  auto group = std::make_unique<GroupOptions>(options.lr);
  group->momentum(options.momentum);
  group->dampening(options.dampening);
  group->weight_decay(options.weight_decay);
  group->nesterov(options.nesterov);
  group->kernel = options.kernel;
  return group;
}

kernels::SgdFactors factors_of(const Work& work, float inverse_divisor) {
  const auto& options = typed(*work.options);
  return {
      .inverse_divisor = inverse_divisor,
      .weight_decay = static_cast<float>(options.weight_decay()),
      .momentum = static_cast<float>(options.momentum()),
      .one_minus_dampening = static_cast<float>(1 - options.dampening()),
      .lr = static_cast<float>(options.lr()),
      .nesterov = options.nesterov(),
      .first_step = work.record->fresh};
}

class SGDRule : public UpdateRule {
 public:
  const char* name() const override { return "SGD"; }

  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"momentum_buffer"};
    return names;
  }

  size_t moment_count(const OptimizerOptions& options) const override {
    return typed(options).momentum() != 0 ? 1 : 0;
  }

  bool may_lack_moments() const override { return true; }

  void check_options(const OptimizerOptions& options) const override {
    const auto& o = typed(options);
    check_range("SGD", "lr", o.lr(), 0, kInfinity);
    check_range("SGD", "momentum", o.momentum(), 0, kInfinity);
    check_range("SGD", "weight_decay", o.weight_decay(), 0, kInfinity);
    TORCH_CHECK_VALUE(
        !o.nesterov() || (o.momentum() > 0 && o.dampening() == 0),
        "SGD: nesterov needs momentum > 0 and dampening 0, got momentum ",
        o.momentum(),
        " and dampening ",
        o.dampening());
  }

  Kernel kernel(const OptimizerOptions& options) const override {
    const auto* ours = dynamic_cast<const GroupOptions*>(&options);
    return ours != nullptr ? ours->kernel : Kernel::automatic;
  }

  io::StateDict save_options(const OptimizerOptions& options) const override {
    const auto& o = typed(options);
    io::StateDict state;
    state.set("lr", o.lr());
    state.set("momentum", o.momentum());
    state.set("dampening", o.dampening());
    state.set("weight_decay", o.weight_decay());
    state.set("nesterov", o.nesterov());
    return state;
  }

  std::unique_ptr<OptimizerOptions> load_options(
      const io::StateDict& state,
      const OptimizerOptions& current) const override {
    auto loaded = current.clone();
    auto& o = dynamic_cast<torch::optim::SGDOptions&>(*loaded);
    o.lr(state.real("lr"));
    o.momentum(state.real("momentum"));
    o.dampening(state.real("dampening"));
    o.weight_decay(state.real("weight_decay"));
    o.nesterov(state.boolean("nesterov"));
    check_options(o);
    return loaded;
  }

  bool first_step_differs(const OptimizerOptions& options) const override {
    return typed(options).momentum() != 0 && typed(options).dampening() != 0;
  }

  void prepare(std::span<const Work> works, float inverse_divisor) override {
    factors_.clear();
    for (const Work& work : works) {
      factors_.push_back(factors_of(work, inverse_divisor));
    }
  }

  void update(size_t i, const kernels::UpdateSpan& span) const override {
    kernels::UpdateSpan used = span;
    if (factors_[i].momentum == 0) {
      used.first = nullptr; // kept from when there was momentum
    }
    kernels::sgd_update(factors_[i], used);
  }

  void update_stock(const StockBatch& batch) const override {
    const auto& o = typed(*batch.options);
    const ParameterRecord& first = *batch.records.front();
    // Where only the device knows whether this step is taken, a buffer of zeros
    // serves as a new one: the same unless there is dampening.
    const bool is_first =
        first.fresh && (first.parameter.is_cpu() || first_step_differs(o));
    at::_fused_sgd_(
        batch.weights,
        batch.grads,
        o.momentum() != 0 ? moments_of(batch, 0) : std::vector<at::Tensor>(),
        o.weight_decay(),
        o.momentum(),
        o.lr(),
        o.dampening(),
        o.nesterov(),
        /*maximize=*/false,
        is_first,
        /*grad_scale=*/{},
        batch.found_inf.defined() ? std::optional(batch.found_inf)
                                  : std::nullopt);
  }

 private:
  std::vector<kernels::SgdFactors> factors_;
};

RawGroup to_raw(ParamGroup<SGDOptions> group) {
  return {
      std::move(group.params),
      std::move(group.names),
      std::move(group.name),
      to_group_options(group.options)};
}

std::vector<RawGroup> to_raw(std::vector<ParamGroup<SGDOptions>> groups) {
  std::vector<RawGroup> raw;
  for (auto& group : groups) {
    raw.push_back(to_raw(std::move(group)));
  }
  return raw;
}

} // namespace

SGD::SGD(std::vector<at::Tensor> params, const Options& options)
    : SGD(NamedParameters{std::move(params), {}}, options) {}

SGD::SGD(NamedParameters params, const Options& options)
    : SGD(std::vector<ParamGroup<Options>>{
          {std::move(params.params), options, "", std::move(params.names)}}) {}

SGD::SGD(std::vector<ParamGroup<Options>> groups)
    : FusedOptimizer(std::make_unique<SGDRule>(), to_raw(std::move(groups))) {}

void SGD::add_param_group(ParamGroup<Options> group) {
  add_group(to_raw(std::move(group)));
}

SGD::Options SGD::options(size_t index) const {
  const auto& o = typed(param_groups().at(index).options());
  return {
      .lr = o.lr(),
      .momentum = o.momentum(),
      .dampening = o.dampening(),
      .weight_decay = o.weight_decay(),
      .nesterov = o.nesterov(),
      .kernel = SGDRule().kernel(o)};
}

void SGD::set_options(const Options& options, size_t index) {
  auto group = to_group_options(options);
  SGDRule().check_options(*group);
  param_groups().at(index).set_options(std::move(group));
}

} // namespace ampkit::optim
