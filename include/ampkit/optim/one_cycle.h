#pragma once

#include <cstdint>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/optim/lr_scheduler.h>

namespace ampkit::optim {

/// Settings of a OneCycleLR; the defaults are those of torch.optim's.
struct OneCycleLROptions {
  /// Highest rate: one for all groups, or one a group; > 0.
  std::vector<double> max_lr;
  /// >= 2. Stepping beyond throws.
  int64_t total_steps = 0;
  /// Part of the steps that goes up; in [0, 1), and not exactly one step.
  double pct_start = 0.3;
  /// false: straight lines.
  bool cosine = true;
  /// Moves momentum (SGD) or the first beta (Adam, AdamW) the other way.
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  /// The first rate is max_lr / this.
  double div_factor = 25;
  /// The last rate is the first one / this.
  double final_div_factor = 1e4;
  /// Down to the first rate as fast as up, then to the last one.
  bool three_phase = false;
};

/// torch.optim.lr_scheduler.OneCycleLR (Smith and Topin, 2018). The groups'
/// present rates are not used.
class AMPKIT_API OneCycleLR : public LRScheduler {
 public:
  /// Throws c10::ValueError for options out of range, and if momentum is to be
  /// cycled and the optimizer has none.
  OneCycleLR(
      torch::optim::Optimizer& optimizer, const OneCycleLROptions& options);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  void check_step(int64_t step) const override;
  void apply_extras(int64_t step) override;
  const char* kind() const override { return "OneCycleLR"; }
  io::StateDict settings() const override;

 private:
  struct Levels { // what one quantity is at the turning points
    double start = 0;
    double peak = 0;
    double end = 0;
  };
  struct Place { // phase of a step, and how far along it
    size_t phase = 0;
    double fraction = 0;
  };

  Place place(int64_t step) const;
  double anneal(const Levels& levels, int64_t step) const;

  OneCycleLROptions options_;
};

} // namespace ampkit::optim
