#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <ampkit/diagnose/watch.h>

#include "amp/lagged_copy.h"
#include "diagnose/judge.h"
#include "diagnose/op_observer.h"

namespace ampkit::diagnose {

/// A step that has ended but whose flags are still on their way.
struct PendingStep {
  std::shared_ptr<OpObserver> observer;
  StepContext context;
  at::Tensor bits; ///< on the device
  LaggedCopy copy; ///< of them
};

struct Watch::Impl {
  Impl(std::shared_ptr<const NamedTensors> named, const WatchOptions& options);

  Step begin(int64_t number);
  /// How large they are at first, of those on the CPU.
  void remember_names();
  /// Reads parameters and buffers at the end of a step.
  void look_at_names(StepContext& context, OpObserver& observer);
  void note_growth(int32_t entry, double amax);
  std::optional<Finding> conclude(
      OpObserver& observer, const StepContext& context);
  void send(std::shared_ptr<OpObserver> observer, StepContext context);
  /// Concludes what has arrived, or, if `wait`, everything.
  void receive(bool wait);

  std::shared_ptr<const NamedTensors> names;
  WatchOptions options;
  int64_t next = 0;
  int64_t watched = 0;
  int64_t handled = 0;
  std::vector<double> first_amax; ///< of each named tensor; < 0: not seen
  int32_t grown = -1; ///< the parameter that grew most, and by how much
  double growth = 1;
  std::deque<PendingStep> pending;
  std::vector<Finding> findings;
};

struct Watch::Step::State {
  Impl* watch = nullptr;
  std::shared_ptr<OpObserver> observer; ///< null: not watched
  StepContext context;
  bool ended = false;
  std::optional<Finding> finding;
};

} // namespace ampkit::diagnose
