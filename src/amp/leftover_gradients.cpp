#include "amp/leftover_gradients.h"

#include <algorithm>
#include <utility>

namespace ampkit {

bool LeftoverGradients::Entry::is_untouched() const {
  auto owner = parameter.lock();
  auto values = gradient.lock();
  if (!owner.defined() || !values.defined()) {
    return false;
  }
  const at::Tensor now = at::Tensor(std::move(owner)).grad();
  return now.unsafeGetTensorImpl() == values.get() && now._version() == version;
}

bool LeftoverGradients::Step::any_untouched() const {
  return std::ranges::any_of(entries, &Entry::is_untouched);
}

void LeftoverGradients::remember(
    Owner owner, const std::vector<Gradient>& gradients, const Flag& bad) {
  Step step{.owner = owner, .bad = bad};
  for (const Gradient& gradient : gradients) {
    const at::Tensor& grad = gradient.parameter.grad();
    if (grad.defined() && !grad.is_inference()) { // which has no version
      step.entries.push_back(
          {WeakTensor(gradient.parameter.getIntrusivePtr()),
           WeakTensor(grad.getIntrusivePtr()),
           static_cast<uint32_t>(grad._version())});
    }
  }
  remembered_.push_back(std::move(step));
}

void LeftoverGradients::next_iteration() {
  watched_ = std::move(remembered_);
  remembered_.clear();
  found_.clear();
}

bool LeftoverGradients::any() const {
  return std::ranges::any_of(watched_, &Step::any_untouched);
}

void LeftoverGradients::look() {
  for (const Step& step : watched_) {
    if (step.any_untouched()) {
      found_[step.owner] = found_[step.owner] | step.bad;
    }
  }
}

Flag LeftoverGradients::found(Owner owner) const {
  const auto found = found_.find(owner);
  return found == found_.end() ? Flag() : found->second;
}

void look_before_backward(
    const at::Tensor& loss,
    const std::shared_ptr<LeftoverGradients>& leftovers) {
  if (loss.requires_grad() && !loss.is_leaf() && leftovers->any()) {
    loss.register_hook([leftovers](const at::Tensor&) { leftovers->look(); });
  }
}

} // namespace ampkit
