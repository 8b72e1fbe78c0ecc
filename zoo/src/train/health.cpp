#include "train/health.h"

#include <algorithm>

#include <c10/util/Exception.h>

namespace ampkit::zoo {
namespace {

constexpr size_t kWindow = 100;

} // namespace

void Health::record(bool finite, bool fault) {
  bad_in_a_row_ = finite ? 0 : bad_in_a_row_ + 1;
  faults_in_a_row_ = fault ? faults_in_a_row_ + 1 : 0;
  faults_ += fault ? 1 : 0;
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
  state.set("faults_in_a_row", faults_in_a_row_);
  state.set("faults", faults_);
  return state;
}

void Health::load_state_dict(const io::StateDict& state) {
  const auto& recent = state.text("recent");
  const auto bad_in_a_row = state.integer("bad_in_a_row");
  const auto faults_in_a_row = state.integer("faults_in_a_row");
  faults_ = state.integer("faults");
  faults_in_a_row_ = faults_in_a_row;
  bad_in_a_row_ = bad_in_a_row;
  recent_ = recent;
}

void check_health(
    const Health& health, const StepRecord& record, const RunConfig& config) {
  const auto limit = config.precision.max_consecutive_faults;
  TORCH_CHECK(
      limit == 0 || health.faults_in_a_row() < limit,
      "Trainer::run: the loss was not finite in ",
      health.faults_in_a_row(),
      " steps in a row, the last of them step ",
      record.step,
      " (",
      record.why,
      "), which no loss scale cures; look at the data and model.weights, lower "
      "optimizer.lr, or clip with optimizer.max_norm "
      "(precision.max_consecutive_faults sets this limit)");
  TORCH_CHECK(
      health.bad_in_a_row() < config.train.patience,
      "Trainer::run: the loss or a gradient was not finite in ",
      health.bad_in_a_row(),
      " steps in a row, the last of them step ",
      record.step,
      " (",
      record.why,
      "), at loss scale ",
      record.scale,
      "; lower optimizer.lr, clip with optimizer.max_norm, or take "
      "precision.preset = \"bf16-mixed\"");
}

} // namespace ampkit::zoo
