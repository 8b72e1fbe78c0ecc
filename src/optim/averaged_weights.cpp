#include <ampkit/optim/averaged_weights.h>

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

AveragedWeights::AveragedWeights(
    const char* kind, const torch::nn::Module& module, bool use_buffers)
    : kind_(kind) {
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    add(item.key(), item.value());
  }
  TORCH_CHECK_VALUE(
      !entries_.empty(),
      kind,
      ": the module has 0 parameters; is the submodule registered?");
  for (const auto& item : module.named_buffers()) {
    if (use_buffers) {
      add(item.key(), item.value());
    } else {
      other_buffers_.push_back(item.value());
    }
  }
}

void AveragedWeights::add(const std::string& name, const at::Tensor& source) {
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

void AveragedWeights::update() {
  TORCH_CHECK(
      !swapped_,
      kind_,
      "::update: the module holds the averages; end the swap first");
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

void AveragedWeights::move_averages() {
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
      average.copy_(next_integers(average, entry.source.to(average.device())));
    }
  }
  for (auto& [key, list] : lists) {
    move(list.first, list.second);
  }
}

AveragedWeights::Swap AveragedWeights::swap_in() {
  TORCH_CHECK(
      !swapped_, kind_, "::swap_in: the averages are swapped in already");
  return Swap(*this);
}

std::vector<at::Tensor> AveragedWeights::module_tensors() const {
  auto tensors = other_buffers_;
  for (const Entry& entry : entries_) {
    tensors.push_back(entry.source.detach());
  }
  return tensors;
}

AveragedWeights::Swap::Swap(AveragedWeights& owner) : owner_(&owner) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : owner.module_tensors()) {
    before_.push_back(tensor.clone());
  }
  if (owner.updates_ > 0) {
    for (const Entry& entry : owner.entries_) {
      entry.source.detach().copy_(entry.average);
    }
  }
  owner.swapped_ = true;
}

AveragedWeights::Swap::Swap(Swap&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      before_(std::move(other.before_)) {}

AveragedWeights::Swap::~Swap() {
  if (owner_ == nullptr) {
    return;
  }
  const at::NoGradGuard no_grad;
  try {
    const auto tensors = owner_->module_tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].copy_(before_[i]);
    }
  } catch (const std::exception& error) {
    TORCH_WARN(
        owner_->kind_, ": the weights were not restored: ", error.what());
  }
  owner_->swapped_ = false;
}

io::StateDict AveragedWeights::state_dict() const {
  io::StateDict state;
  state.set("updates", updates_);
  for (const Entry& entry : entries_) {
    state.set("average." + entry.name, entry.average);
  }
  return state;
}

std::string AveragedWeights::misfits(const io::StateDict& state) const {
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

void AveragedWeights::load_state_dict(const io::StateDict& state) {
  const int64_t updates = state.integer("updates");
  const std::string problems = misfits(state);
  TORCH_CHECK(
      problems.empty(),
      kind_,
      "::load_state_dict: the state does not fit, "
      "nothing was changed:",
      problems);
  const at::NoGradGuard no_grad;
  for (const Entry& entry : entries_) {
    entry.average.copy_(state.tensor("average." + entry.name));
  }
  updates_ = updates;
}

} // namespace ampkit::optim
