#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/grad_scaler_options.h>

#include "amp/flag.h"

namespace ampkit {

/// The loss scale and the rule by which overflows and clean steps change it.
///
/// On the CPU all of it is host arithmetic; on other devices it is made of
/// tensors, and nothing waits. Both give the same numbers.
class LossScale {
 public:
  struct State {
    float scale = 0;
    /// Clean steps since the last change.
    int64_t growth_tracker = 0;
    /// The scale shrinks at the so-manyth overflow from now; 0: at each.
    int64_t hysteresis_tracker = 0;
  };

  /// `options` were checked.
  explicit LossScale(const GradScalerOptions& options);

  /// Goes to `device`, once.
  void place(c10::Device device);
  bool placed() const { return scale_.defined(); }

  /// fp32 [], once placed. Never changes: another takes its place.
  const at::Tensor& tensor() const { return scale_; }

  /// Waits for the device.
  State state() const;

  void load(const GradScalerOptions& options, const State& state);
  void set(double scale);

  /// After an iteration. `hold`: nothing changes.
  void update(const Flag& overflow, const Flag& hold);

  /// The rule itself.
  static State after(
      const State& state, bool overflow, const GradScalerOptions& options);

 private:
  void set_state(const State& state);
  void update_on_device(const at::Tensor& overflow, const at::Tensor& hold);

  GradScalerOptions options_;
  bool on_device_ = false; // where nothing can be read without waiting
  State state_; // while not there
  at::Tensor scale_;
  at::Tensor growth_tracker_; // int64 [], there only
  at::Tensor hysteresis_tracker_; // int64 [], there only
};

} // namespace ampkit
