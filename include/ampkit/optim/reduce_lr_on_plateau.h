#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ampkit/amp/step_result.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ampkit::optim {

/// Settings of a ReduceLROnPlateau; the defaults are those of torch.optim's.
struct ReduceLROnPlateauOptions {
  /// Whether a lower or a higher metric is better.
  enum class Mode { min, max };
  /// Whether `threshold` is a part of the best metric or an amount.
  enum class ThresholdMode { rel, abs };

  Mode mode = Mode::min;
  /// The rate is multiplied by it; in (0, 1).
  double factor = 0.1;
  /// Steps without a better metric that change nothing; >= 0.
  int64_t patience = 10;
  /// By how much a better metric must be better; >= 0.
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::rel;
  /// Steps after a reduction that don't count; >= 0.
  int64_t cooldown = 0;
  /// Lowest rate: one for all groups, or one a group; >= 0.
  std::vector<double> min_lr = {0.0};
  /// A smaller reduction is not made; >= 0.
  double eps = 1e-8;
};

/// torch.optim.lr_scheduler.ReduceLROnPlateau: lowers the rates of all groups
/// when a metric has stopped to get better.
///
///     ReduceLROnPlateau schedule(optimizer, {.patience = 3});
///     ...
///     schedule.step(evaluate(*model));   // once an epoch
///
/// As in Python a NaN is never better, and there is no place for it in a chain:
/// it needs the metric. The optimizer must live longer, and keep its number of
/// groups. Not thread-safe.
class AMPKIT_API ReduceLROnPlateau {
 public:
  /// Throws c10::ValueError for options out of range.
  explicit ReduceLROnPlateau(
      torch::optim::Optimizer& optimizer,
      const ReduceLROnPlateauOptions& options = {});

  /// Takes the next value of the metric.
  void step(double metric);

  /// Takes it only if the optimizer's step was taken; says whether. Waits for
  /// the device.
  bool step(double metric, const StepResult& result);

  /// The rates after the last step, one a group.
  const std::vector<double>& last_lr() const { return last_lr_; }

  /// Metrics taken so far; Python's last_epoch.
  int64_t steps() const { return progress_.steps; }

  /// The best metric so far; infinite before the first.
  double best() const { return progress_.best; }

  /// Settings, progress and rates.
  io::StateDict state_dict() const;

  /// Restores the progress and sets the optimizer's rates. Throws c10::Error,
  /// having changed nothing, if the state is of another kind of schedule, other
  /// settings or another number of groups.
  void load_state_dict(const io::StateDict& state);

 private:
  struct Progress {
    int64_t steps = 0;
    double best = std::numeric_limits<double>::infinity();
    int64_t bad_steps = 0;
    int64_t cooldown = 0;
  };

  bool is_better(double metric) const;
  void reduce(std::vector<double>& rates) const;
  io::StateDict settings() const;

  torch::optim::Optimizer* optimizer_;
  ReduceLROnPlateauOptions options_;
  std::vector<double> last_lr_;
  Progress progress_;
};

} // namespace ampkit::optim
