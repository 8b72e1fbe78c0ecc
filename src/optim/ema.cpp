#include <ampkit/optim/ema.h>

#include <map>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

namespace ampkit::optim {
namespace {

at::ScalarType average_type(const at::Tensor& source) {
  return source.is_floating_point() && source.element_size() < 4
             ? at::kFloat
             : source.scalar_type();
}

bool is_inexact(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

} // namespace

ExponentialMovingAverage::ExponentialMovingAverage(
    const torch::nn::Module& module,
    const ExponentialMovingAverageOptions& options)
    : options_(options) {
  TORCH_CHECK_VALUE(
      options.decay >= 0 && options.decay <= 1,
      "ExponentialMovingAverage: decay must be in [0, 1], got ",
      options.decay);
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    add(item.key(), item.value());
  }
  TORCH_CHECK_VALUE(
      !entries_.empty(),
      "ExponentialMovingAverage: the module has 0 parameters; is the submodule "
      "registered?");
  if (options.use_buffers) {
    for (const auto& item : module.named_buffers()) {
      add(item.key(), item.value());
    }
  }
}

void ExponentialMovingAverage::add(
    const std::string& name, const at::Tensor& source) {
  for (const Entry& entry : entries_) {
    if (entry.source.is_same(source)) {
      return; // tied
    }
  }
  entries_.push_back(
      {name,
       source,
       source.detach().to(
           source.options().dtype(average_type(source)),
           /*non_blocking=*/false,
           /*copy=*/true)});
}

void ExponentialMovingAverage::update() {
  TORCH_CHECK(
      !swapped_,
      "ExponentialMovingAverage::update: the module holds the averages; end "
      "the swap first");
  const at::NoGradGuard no_grad;
  if (updates_ == 0) {
    for (const Entry& entry : entries_) {
      entry.average.copy_(entry.source);
    }
  } else {
    move_averages();
  }
  ++updates_;
}

void ExponentialMovingAverage::move_averages() {
  const double weight = 1 - options_.decay;
  using Key = std::pair<c10::Device, at::ScalarType>;
  const auto less = [](const Key& a, const Key& b) {
    return std::pair(a.first.str(), a.second) <
           std::pair(b.first.str(), b.second);
  };
  using Lists = std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>;
  std::map<Key, Lists, decltype(less)> lists(less);
  for (const Entry& entry : entries_) {
    const at::Tensor& average = entry.average;
    if (is_inexact(average)) {
      auto& [averages, sources] =
          lists[{average.device(), average.scalar_type()}];
      averages.push_back(average);
      sources.push_back(entry.source.detach().to(average.options()));
    } else {
      average.copy_(
          average * options_.decay +
          entry.source.to(average.options()) * weight);
    }
  }
  for (auto& [key, list] : lists) {
    at::_foreach_lerp_(list.first, list.second, weight);
  }
}

ExponentialMovingAverage::Swap ExponentialMovingAverage::swap_in() {
  TORCH_CHECK(
      !swapped_,
      "ExponentialMovingAverage::swap_in: the averages are swapped in already");
  return Swap(*this);
}

ExponentialMovingAverage::Swap::Swap(ExponentialMovingAverage& owner)
    : owner_(&owner) {
  const at::NoGradGuard no_grad;
  if (owner.updates_ > 0) {
    for (const Entry& entry : owner.entries_) {
      weights_.push_back(entry.source.detach().clone());
    }
    for (const Entry& entry : owner.entries_) {
      entry.source.detach().copy_(entry.average);
    }
  }
  owner.swapped_ = true;
}

ExponentialMovingAverage::Swap::Swap(Swap&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      weights_(std::move(other.weights_)) {}

ExponentialMovingAverage::Swap::~Swap() {
  if (owner_ == nullptr) {
    return;
  }
  const at::NoGradGuard no_grad;
  try {
    for (size_t i = 0; i < weights_.size(); ++i) {
      owner_->entries_[i].source.detach().copy_(weights_[i]);
    }
  } catch (const std::exception& error) {
    TORCH_WARN(
        "ExponentialMovingAverage: the weights were not restored: ",
        error.what());
  }
  owner_->swapped_ = false;
}

io::StateDict ExponentialMovingAverage::state_dict() const {
  io::StateDict state;
  state.set("updates", updates_);
  for (const Entry& entry : entries_) {
    state.set("average." + entry.name, entry.average);
  }
  return state;
}

std::string ExponentialMovingAverage::misfits(
    const io::StateDict& state) const {
  std::ostringstream problems;
  for (const Entry& entry : entries_) {
    const std::string key = "average." + entry.name;
    if (!state.contains(key)) {
      problems << "\n  - '" << key << "' is missing";
      continue;
    }
    const at::Tensor& saved = state.tensor(key);
    if (saved.sizes() != entry.average.sizes() ||
        saved.scalar_type() != entry.average.scalar_type()) {
      problems << "\n  - '" << key << "' is " << io::describe(saved)
               << ", the module needs " << io::describe(entry.average);
    }
  }
  if (state.size() > entries_.size() + 1) {
    problems << "\n  - it has " << state.size() - 1 << " averages, the module "
             << entries_.size();
  }
  return problems.str();
}

void ExponentialMovingAverage::load_state_dict(const io::StateDict& state) {
  const int64_t updates = state.integer("updates");
  const std::string problems = misfits(state);
  TORCH_CHECK(
      problems.empty(),
      "ExponentialMovingAverage::load_state_dict: the state does not fit, "
      "nothing was changed:",
      problems);
  const at::NoGradGuard no_grad;
  for (const Entry& entry : entries_) {
    entry.average.copy_(state.tensor("average." + entry.name));
  }
  updates_ = updates;
}

} // namespace ampkit::optim
