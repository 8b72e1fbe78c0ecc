#include "dist/rank_progress.h"

#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

namespace ampkit::dist {

void RankProgress::at_step(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_ = step;
  step_is_given_ = true;
}

void RankProgress::count_step() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!step_is_given_) {
    step_ = step_ < 0 ? 1 : step_ + 1;
  }
}

int64_t RankProgress::begin(const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_ = what;
  return ++collectives_;
}

int64_t RankProgress::collectives() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return collectives_;
}

std::string RankProgress::text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto step =
      step_ < 0 ? "before its first step" : "at step " + std::to_string(step_);
  return collectives_ == 0 ? step + ", before its first collective"
                           : c10::str(
                                 step,
                                 ", in or after collective ",
                                 collectives_,
                                 ", ",
                                 last_);
}

std::string describe_collective(
    const char* name,
    const std::vector<at::Tensor>& tensors,
    const std::string& details) {
  constexpr size_t kShown = 4;
  std::string text = name + details;
  for (size_t i = 0; i < tensors.size() && i < kShown; ++i) {
    text += c10::str(
        i == 0 ? " of " : ", ",
        c10::toString(tensors[i].scalar_type()),
        " ",
        tensors[i].sizes());
  }
  if (tensors.size() > kShown) {
    text += c10::str(" and ", tensors.size() - kShown, " more");
  }
  return text;
}

} // namespace ampkit::dist
