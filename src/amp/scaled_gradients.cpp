#include "amp/scaled_gradients.h"

#include <algorithm>
#include <mutex>
#include <set>

namespace ampkit {
namespace {

struct ScaledRegistry {
  std::mutex mutex; // of all instances
  std::set<const ScaledGradients*> instances;
};

ScaledRegistry& scaled_registry() {
  static auto& registry = *new ScaledRegistry; // scalers may outlive statics
  return registry;
}

using Lock = std::lock_guard<std::mutex>;

} // namespace

ScaledGradients::ScaledGradients() {
  const Lock lock(scaled_registry().mutex);
  scaled_registry().instances.insert(this);
}

ScaledGradients::~ScaledGradients() {
  const Lock lock(scaled_registry().mutex);
  scaled_registry().instances.erase(this);
}

ScaledGradients::Entry& ScaledGradients::entry_of(const at::Tensor& parameter) {
  const auto* address = parameter.unsafeGetTensorImpl();
  const auto found = entries_.find(address);
  if (found != entries_.end()) {
    return found->second;
  }
  std::erase_if(entries_, [](const auto& entry) {
    return entry.second.parameter.expired();
  });
  return entries_
      .emplace(address, Entry{WeakTensor(parameter.getIntrusivePtr())})
      .first->second;
}

void ScaledGradients::know(const std::vector<at::Tensor>& parameters) {
  const Lock lock(scaled_registry().mutex);
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined()) {
      entry_of(parameter);
    }
  }
}

void ScaledGradients::begin() {
  const Lock lock(scaled_registry().mutex);
  scaling_ = true;
}

void ScaledGradients::unscaled(const std::vector<at::Tensor>& parameters) {
  const Lock lock(scaled_registry().mutex);
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined()) {
      entry_of(parameter).unscaled_in = iteration_;
    }
  }
}

void ScaledGradients::end() {
  const Lock lock(scaled_registry().mutex);
  scaling_ = false;
  ++iteration_;
}

bool ScaledGradients::has(const at::Tensor& parameter) {
  const Lock lock(scaled_registry().mutex);
  return std::ranges::any_of(
      scaled_registry().instances, [&](const ScaledGradients* one) {
        const auto found = one->entries_.find(parameter.unsafeGetTensorImpl());
        return one->scaling_ && found != one->entries_.end() &&
               found->second.unscaled_in != one->iteration_;
      });
}

} // namespace ampkit
