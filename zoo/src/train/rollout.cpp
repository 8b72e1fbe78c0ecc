#include <ampkit/zoo/train/rollout.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include <c10/util/Exception.h>

namespace ampkit::zoo {
namespace {

using Records = std::vector<StepRecord>;

void check_bounds(const RolloutBounds& bounds) {
  TORCH_CHECK_VALUE(
      bounds.loss > 0, "rollout: bounds.loss must be > 0, got ", bounds.loss);
  TORCH_CHECK_VALUE(
      bounds.grad_norm >= 1,
      "rollout: bounds.grad_norm must be >= 1, got ",
      bounds.grad_norm);
  TORCH_CHECK_VALUE(
      bounds.nan_rate >= 0 && bounds.nan_rate <= 1,
      "rollout: bounds.nan_rate must be in [0, 1], got ",
      bounds.nan_rate);
}

double late_loss(const Records& records) {
  const size_t first = records.size() - (records.size() + 3) / 4;
  double sum = 0;
  for (size_t i = first; i < records.size(); ++i) {
    sum += records[i].loss;
  }
  return sum / static_cast<double>(records.size() - first);
}

// NaN without any.
double median(std::vector<double> values) {
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_ratio_of_norms(const Records& reference, const Records& low) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(reference.size(), low.size()); ++i) {
    const double ratio = low[i].grad_norm / reference[i].grad_norm;
    if (std::isfinite(ratio)) { // NaN where a step was skipped
      ratios.push_back(ratio);
    }
  }
  return median(ratios);
}

double share_not_finite(const Records& records) {
  const auto bad =
      std::count_if(records.begin(), records.end(), [](const auto& record) {
        return record.skipped || !std::isfinite(record.loss);
      });
  return static_cast<double>(bad) / static_cast<double>(records.size());
}

RolloutCheck check_loss(
    const Records& reference, const Records& low, double bound) {
  const double expected = late_loss(reference);
  const double found = late_loss(low);
  const double apart = std::abs(found - expected) / std::abs(expected);
  return {
      "loss",
      apart <= bound && low.size() == reference.size(),
      c10::str(
          found,
          ", in fp32 ",
          expected,
          ": ",
          100 * apart,
          " % apart, at most ",
          100 * bound,
          " %",
          low.size() == reference.size() ? "" : "; the run was given up")};
}

RolloutCheck check_norms(
    const Records& reference, const Records& low, double bound) {
  const double ratio = median_ratio_of_norms(reference, low);
  return {
      "gradient norm",
      ratio <= bound && ratio >= 1 / bound,
      c10::str(
          ratio, " of fp32's (median), in [", 1 / bound, ", ", bound, "]")};
}

bool scales(const Records& records) {
  return std::any_of(records.begin(), records.end(), [](const auto& record) {
    return record.scale != 1;
  });
}

RolloutCheck check_scale(const Records& low, double min_scale) {
  if (!scales(low)) {
    return {"scale", true, "the loss is not scaled"};
  }
  const double last = low.back().scale;
  return {
      "scale",
      last > min_scale,
      c10::str(
          low.front().scale,
          " to ",
          last,
          ", its floor is ",
          min_scale,
          "; ",
          low.back().skipped_total,
          " steps skipped")};
}

RolloutCheck check_nan_rate(const Records& low, double bound) {
  const double share = share_not_finite(low);
  return {
      "NaN rate",
      share <= bound,
      c10::str(100 * share, " % of steps, at most ", 100 * bound, " %")};
}

// Ends as the Trainer does, or throws.
bool run_side(
    const RunConfig& config,
    const TrainingData& data,
    int64_t steps,
    const std::function<void(const StepRecord&)>& on_step,
    const std::function<bool()>& should_stop) {
  Trainer trainer(config, make_model(config, data), data);
  bool stopped = false;
  int64_t done = 0;
  trainer.run(
      {.on_step =
           [&](const StepRecord& record) {
             done = record.step;
             if (record.step <= steps) {
               on_step(record);
             }
           },
       .should_stop =
           [&] {
             stopped = should_stop && should_stop();
             return stopped || done >= steps;
           }});
  return !stopped;
}

RunConfig without_evaluation(RunConfig config) {
  config.train.eval_every = std::numeric_limits<int32_t>::max();
  config.checkpoint.every_steps = 0;
  return config;
}

} // namespace

bool RolloutResult::pass() const {
  return std::all_of(checks.begin(), checks.end(), [](const auto& check) {
    return check.pass;
  });
}

std::vector<RolloutCheck> check_rollout(
    const std::vector<StepRecord>& reference,
    const std::vector<StepRecord>& low,
    double min_scale,
    const RolloutBounds& bounds) {
  check_bounds(bounds);
  TORCH_CHECK_VALUE(
      !reference.empty() && !low.empty(),
      "check_rollout: expected at least one step of each run, got ",
      reference.size(),
      " in FP32 and ",
      low.size(),
      " in low precision");
  return {
      check_loss(reference, low, bounds.loss),
      check_norms(reference, low, bounds.grad_norm),
      check_scale(low, min_scale),
      check_nan_rate(low, bounds.nan_rate)};
}

std::optional<RolloutResult> rollout(
    const RunConfig& config,
    const TrainingData& data,
    int64_t steps,
    const RolloutBounds& bounds,
    const std::function<void(const StepRecord&, bool low)>& on_step,
    const std::function<bool()>& should_stop) {
  check_bounds(bounds);
  TORCH_CHECK_VALUE(steps >= 1, "rollout: steps must be >= 1, got ", steps);
  TORCH_CHECK_VALUE(
      Precision::parse(config.precision.preset) != Precision::fp32(),
      "rollout: precision.preset is fp32, which is what a roll-out compares "
      "with; choose the precision that the full run is to have");
  RolloutResult result;
  const auto keep = [&](Records& records, bool low) {
    return [&records, &on_step, low](const StepRecord& record) {
      records.push_back(record);
      if (on_step) {
        on_step(record, low);
      }
    };
  };
  auto reference = without_evaluation(config);
  reference.precision.preset = "fp32";
  if (!run_side(
          reference, data, steps, keep(result.reference, false), should_stop)) {
    return std::nullopt;
  }
  try {
    if (!run_side(
            without_evaluation(config),
            data,
            steps,
            keep(result.low, true),
            should_stop)) {
      return std::nullopt;
    }
  } catch (const c10::ValueError&) {
    throw; // a wrong key
  } catch (const c10::Error& error) {
    if (result.low.empty()) {
      throw; // not even one step
    }
    result.checks.push_back({"run", false, error.msg()});
  }
  for (auto& check : check_rollout(
           result.reference, result.low, config.precision.min_scale, bounds)) {
    result.checks.push_back(std::move(check));
  }
  return result;
}

RolloutAlarms::RolloutAlarms(
    const RolloutResult& result, double min_scale, const RolloutBounds& bounds)
    : highest_loss_(0),
      highest_norm_(0),
      min_scale_(min_scale),
      bounds_(bounds),
      on_(4, false) {
  for (const auto& record : result.reference) {
    highest_loss_ = std::max(highest_loss_, record.loss);
    highest_norm_ = std::max(highest_norm_, record.grad_norm);
  }
}

// An alarm rings once, until it was off again.
bool RolloutAlarms::begins(size_t alarm, bool on) {
  const bool before = on_[alarm];
  on_[alarm] = on;
  return on && !before;
}

std::vector<std::string> RolloutAlarms::on_step(const StepRecord& record) {
  std::vector<std::string> alarms;
  const auto ring = [&](size_t alarm, bool on, const std::string& text) {
    if (begins(alarm, on)) {
      alarms.push_back(c10::str("step ", record.step, ": ", text));
    }
  };
  const double loss_limit = (1 + bounds_.loss) * highest_loss_;
  const double norm_limit = bounds_.grad_norm * highest_norm_;
  ring(
      0,
      !(record.loss <= loss_limit),
      c10::str(
          "loss ", record.loss, ", in the roll-out at most ", highest_loss_));
  ring(
      1,
      record.grad_norm > norm_limit, // NaN where the step was skipped
      c10::str(
          "gradient norm ",
          record.grad_norm,
          ", in the roll-out at most ",
          highest_norm_));
  ring(
      2,
      record.nan_rate > bounds_.nan_rate,
      c10::str(
          100 * record.nan_rate,
          " % of the last 100 steps not finite, at most ",
          100 * bounds_.nan_rate,
          " %"));
  ring(
      3,
      record.scale != 1 && record.scale <= min_scale_,
      c10::str("the scale is at its floor, ", min_scale_));
  return alarms;
}

std::string to_string(const RolloutResult& result) {
  std::ostringstream out;
  for (const auto& check : result.checks) {
    out << (check.pass ? "pass  " : "FAIL  ") << check.name << ": "
        << check.text << '\n';
  }
  out << (result.pass() ? "the roll-out passed\n" : "the roll-out failed\n");
  return out.str();
}

} // namespace ampkit::zoo
