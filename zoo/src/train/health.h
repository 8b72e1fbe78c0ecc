#pragma once

#include <cstdint>
#include <string>

#include <ampkit/io/state_dict.h>

namespace ampkit::zoo {

/// Remembers which of the last steps had a loss or gradient that was not
/// finite.
class Health {
 public:
  void record(bool finite);

  /// Share of the last 100 steps that were not finite.
  double nan_rate() const;
  /// Steps since the last finite one.
  int64_t bad_in_a_row() const { return bad_in_a_row_; }

  io::StateDict state_dict() const;
  void load_state_dict(const io::StateDict& state);

 private:
  std::string recent_; // '0' finite, '1' not; the newest last
  int64_t bad_in_a_row_ = 0;
};

} // namespace ampkit::zoo
