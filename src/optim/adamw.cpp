#include <ampkit/optim/adamw.h>

#include <cmath>
#include <limits>

#include <ATen/ops/_fused_adamw.h>
#include <c10/util/Exception.h>
#include <torch/optim/adamw.h>

#include "kernels/optim_adamw.h"
#include "optim/update_rule.h"

namespace ampkit::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// torch's options plus ours.
struct GroupOptions : torch::optim::AdamWOptions {
  using torch::optim::AdamWOptions::AdamWOptions;
  Kernel kernel = Kernel::automatic;

  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<GroupOptions>(*this);
  }
};

const torch::optim::AdamWOptions& typed(const OptimizerOptions& options) {
  const auto* typed = dynamic_cast<const torch::optim::AdamWOptions*>(&options);
  TORCH_CHECK(
      typed != nullptr,
      "AdamW: a parameter group has another optimizer's options; add groups "
      "with AdamW::add_param_group");
  return *typed;
}

std::unique_ptr<GroupOptions> to_group_options(const AdamWOptions& options) {
  auto group = std::make_unique<GroupOptions>(options.lr);
  group->betas({options.betas.first, options.betas.second});
  group->eps(options.eps);
  group->weight_decay(options.weight_decay);
  group->kernel = options.kernel;
  return group;
}

kernels::AdamWFactors factors_of(
    const torch::optim::AdamWOptions& options,
    int64_t step,
    float inverse_divisor) {
  const auto [beta1, beta2] = options.betas();
  const auto t = static_cast<double>(step);
  const double root = std::sqrt(1 - std::pow(beta2, t));
  const double correction1 = 1 - std::pow(beta1, t);
  return {
      .inverse_divisor = inverse_divisor,
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .beta2 = static_cast<float>(beta2),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .decay = static_cast<float>(1 - options.lr() * options.weight_decay()),
      .step_size = static_cast<float>(options.lr() * root / correction1),
      .eps = static_cast<float>(options.eps() * root)};
}

class AdamWRule : public UpdateRule {
 public:
  const char* name() const override { return "AdamW"; }

  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
    return names;
  }

  size_t moment_count(const OptimizerOptions&) const override { return 2; }

  void check_options(const OptimizerOptions& options) const override {
    const auto& o = typed(options);
    check_range("AdamW", "lr", o.lr(), 0, kInfinity);
    check_range("AdamW", "betas.first", std::get<0>(o.betas()), 0, 1);
    check_range("AdamW", "betas.second", std::get<1>(o.betas()), 0, 1);
    check_range("AdamW", "eps", o.eps(), 0, kInfinity);
    check_range("AdamW", "weight_decay", o.weight_decay(), 0, kInfinity);
    TORCH_CHECK_VALUE(
        !o.amsgrad(), "AdamW: amsgrad must be false, got true; not supported");
  }

  Kernel kernel(const OptimizerOptions& options) const override {
    const auto* ours = dynamic_cast<const GroupOptions*>(&options);
    return ours != nullptr ? ours->kernel : Kernel::automatic;
  }

  io::StateDict save_options(const OptimizerOptions& options) const override {
    const auto& o = typed(options);
    io::StateDict state;
    state.set("lr", o.lr());
    state.set("beta1", std::get<0>(o.betas()));
    state.set("beta2", std::get<1>(o.betas()));
    state.set("eps", o.eps());
    state.set("weight_decay", o.weight_decay());
    return state;
  }

  std::unique_ptr<OptimizerOptions> load_options(
      const io::StateDict& state,
      const OptimizerOptions& current) const override {
    auto loaded = current.clone();
    auto& o = dynamic_cast<torch::optim::AdamWOptions&>(*loaded);
    o.lr(state.real("lr"));
    o.betas({state.real("beta1"), state.real("beta2")});
    o.eps(state.real("eps"));
    o.weight_decay(state.real("weight_decay"));
    check_options(o);
    return loaded;
  }

  bool first_step_differs(const OptimizerOptions&) const override {
    return false;
  }

  void prepare(std::span<const Work> works, float inverse_divisor) override {
    factors_.resize(works.size());
    for (size_t i = 0; i < works.size(); ++i) {
      const bool as_before = i > 0 &&
                             works[i].options == works[i - 1].options &&
                             works[i].record->step == works[i - 1].record->step;
      factors_[i] = as_before ? factors_[i - 1]
                              : factors_of(
                                    typed(*works[i].options),
                                    works[i].record->step + 1,
                                    inverse_divisor);
    }
  }

  void update(size_t i, const kernels::UpdateSpan& span) const override {
    kernels::adamw_update(factors_[i], span);
  }

  void update_stock(const StockBatch& batch) const override {
    const auto& o = typed(*batch.options);
    std::vector<at::Tensor> steps;
    steps.reserve(batch.records.size());
    for (const ParameterRecord* record : batch.records) {
      steps.push_back(record->step_tensor);
    }
    at::_fused_adamw_(
        batch.weights,
        batch.grads,
        moments_of(batch, 0),
        moments_of(batch, 1),
        {},
        steps,
        o.lr(),
        std::get<0>(o.betas()),
        std::get<1>(o.betas()),
        o.weight_decay(),
        o.eps(),
        /*amsgrad=*/false,
        /*maximize=*/false,
        /*grad_scale=*/{},
        batch.found_inf.defined() ? std::optional(batch.found_inf)
                                  : std::nullopt);
  }

 private:
  std::vector<kernels::AdamWFactors> factors_;
};

RawGroup to_raw(ParamGroup<AdamWOptions> group) {
  return {
      std::move(group.params),
      std::move(group.names),
      std::move(group.name),
      to_group_options(group.options)};
}

std::vector<RawGroup> to_raw(std::vector<ParamGroup<AdamWOptions>> groups) {
  std::vector<RawGroup> raw;
  for (auto& group : groups) {
    raw.push_back(to_raw(std::move(group)));
  }
  return raw;
}

} // namespace

AdamW::AdamW(std::vector<at::Tensor> params, const Options& options)
    : AdamW(NamedParameters{std::move(params), {}}, options) {}

AdamW::AdamW(NamedParameters params, const Options& options)
    : AdamW(std::vector<ParamGroup<Options>>{
          {std::move(params.params), options, "", std::move(params.names)}}) {}

AdamW::AdamW(std::vector<ParamGroup<Options>> groups)
    : FusedOptimizer(std::make_unique<AdamWRule>(), to_raw(std::move(groups))) {
}

void AdamW::add_param_group(ParamGroup<Options> group) {
  add_group(to_raw(std::move(group)));
}

AdamW::Options AdamW::options(size_t index) const {
  const auto& o = typed(param_groups().at(index).options());
  const auto [beta1, beta2] = o.betas();
  return {
      .lr = o.lr(),
      .betas = {beta1, beta2},
      .eps = o.eps(),
      .weight_decay = o.weight_decay(),
      .kernel = AdamWRule().kernel(o)};
}

void AdamW::set_options(const Options& options, size_t index) {
  auto group = to_group_options(options);
  AdamWRule().check_options(*group);
  param_groups().at(index).set_options(std::move(group));
}

} // namespace ampkit::optim
