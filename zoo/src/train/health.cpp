#include "train/health.h"

#include <algorithm>

namespace ampkit::zoo {
namespace {

constexpr size_t kWindow = 100;

} // namespace

void Health::record(bool finite) {
  bad_in_a_row_ = finite ? 0 : bad_in_a_row_ + 1;
  recent_.push_back(finite ? '0' : '1');
  if (recent_.size() > kWindow) {
    recent_.erase(0, 1);
  }
}

double Health::nan_rate() const {
  const auto bad = std::ranges::count(recent_, '1');
  return recent_.empty()
             ? 0.0
             : static_cast<double>(bad) / static_cast<double>(recent_.size());
}

io::StateDict Health::state_dict() const {
  io::StateDict state;
  state.set("recent", recent_);
  state.set("bad_in_a_row", bad_in_a_row_);
  return state;
}

void Health::load_state_dict(const io::StateDict& state) {
  const auto recent = state.text("recent");
  bad_in_a_row_ = state.integer("bad_in_a_row");
  recent_ = recent;
}

} // namespace ampkit::zoo
