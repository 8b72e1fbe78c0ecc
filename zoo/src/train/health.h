#pragma once

#include <cstdint>
#include <string>

#include <ampkit/io/state_dict.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/records.h>

namespace ampkit::zoo {

/// Remembers which of the last steps had a loss or gradient that was not
/// finite, and of which kind.
class Health {
 public:
  /// `fault`: it was not, and no loss scale could have cured it.
  void record(bool finite, bool fault = false);

  /// Share of the last 100 steps that were not finite.
  double nan_rate() const;
  /// Steps since the last finite one.
  int64_t bad_in_a_row() const { return bad_in_a_row_; }
  /// Steps since the last one without a fault, and of the whole run.
  int64_t faults_in_a_row() const { return faults_in_a_row_; }
  int64_t faults() const { return faults_; }

  io::StateDict state_dict() const;
  void load_state_dict(const io::StateDict& state);

 private:
  std::string recent_; // '0' finite, '1' not; the newest last
  int64_t bad_in_a_row_ = 0;
  int64_t faults_in_a_row_ = 0;
  int64_t faults_ = 0;
};

/// Throws c10::Error, saying what to do, if train.patience steps or
/// precision.max_consecutive_faults faults came in a row. `record`: the last
/// step.
void check_health(
    const Health& health, const StepRecord& record, const RunConfig& config);

} // namespace ampkit::zoo
