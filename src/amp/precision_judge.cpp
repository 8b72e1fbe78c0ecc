#include "amp/precision_judge.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <c10/util/StringUtil.h>

namespace ampkit {
namespace {

using Kind = LayerEvent::Kind;

/// Fewer elements say nothing about shares.
constexpr int64_t kEvidence = 64;

bool is_16bit(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::output:
      return "output";
    case Kind::output_gradient:
      return "gradient of the output";
    case Kind::parameter_gradient:
      break;
  }
  return "gradient of the parameters";
}

class StepJudge {
 public:
  StepJudge(
      const std::vector<LayerEvent>& events,
      const PrecisionControllerOptions& options,
      const std::vector<std::string>& paths,
      const std::vector<PerKind>& structural)
      : events_(events),
        options_(options),
        paths_(paths),
        structural_(structural),
        findings_(paths.size()) {}

  std::vector<LayerFinding> judge(const StepOutcome& outcome) {
    find_neighbours();
    sum_up();
    const auto output = first_faulty(/*output=*/true);
    const auto gradient = first_faulty(/*output=*/false);
    // A step that was taken had finite gradients: infinities in it, such as
    // those of a mask, do no harm.
    const bool harmful =
        outcome.skipped.value_or(gradient < events_.size() || !has_gradients());
    if (harmful && output < events_.size()) {
      blame_output(output);
    } else if (harmful && gradient < events_.size()) {
      blame_gradient(gradient, outcome);
    } else {
      judge_all();
    }
    return std::move(findings_);
  }

 private:
  LayerFinding& finding(int module) {
    return findings_[static_cast<size_t>(module)];
  }
  bool runs_in_16bit(int module) { return is_16bit(finding(module).dtype); }

  bool has_gradients() const {
    return std::any_of(events_.begin(), events_.end(), [](const auto& event) {
      return event.kind != Kind::output;
    });
  }

  // For each event the layer before it in the same pass: for an output the one
  // that ran before, for its gradient the one that it comes from. -1: none.
  void find_neighbours() {
    int last = -1;
    bool forward = true;
    for (const LayerEvent& event : events_) {
      if (event.kind == Kind::parameter_gradient) {
        before_.push_back(-1);
        continue;
      }
      if (forward != (event.kind == Kind::output)) {
        forward = !forward;
        last = -1;
      }
      before_.push_back(last == event.module ? -1 : last);
      last = event.module;
      if (event.kind == Kind::output) {
        finding(event.module).dtype = event.dtype;
      }
    }
  }

  void sum_up() {
    std::map<std::pair<int, Kind>, TensorCounts> sums;
    std::map<std::pair<int, Kind>, bool> was_16bit;
    for (size_t i = 0; i < events_.size(); ++i) {
      const LayerEvent& event = events_[i];
      const std::pair key{event.module, event.kind};
      sums[key] += event.counts;
      was_16bit[key] =
          was_16bit[key] || was_in_16bit(event.kind, event.module, before_[i]);
    }
    for (const auto& [key, counts] : sums) {
      const auto [module, kind] = key;
      finding(module).statistics[static_cast<size_t>(kind)] =
          shares(counts, zero_rule(module, kind, was_16bit[key]));
    }
  }

  // A gradient is in 16 bits as long as the layer whose output it belongs to is
  // or the one that it comes from.
  bool was_in_16bit(Kind kind, int module, int from) {
    return runs_in_16bit(module) ||
           (kind == Kind::output_gradient && from >= 0 && runs_in_16bit(from));
  }

  ZeroRule zero_rule(int module, Kind kind, bool was_16bit) const {
    return {
        .was_16bit = was_16bit,
        .structural =
            structural_[static_cast<size_t>(module)][static_cast<size_t>(kind)],
        .all_zero_is_loss = kind != Kind::output};
  }

  // The index of the first event that is not finite, or the end.
  size_t first_faulty(bool output) const {
    const auto found =
        std::find_if(events_.begin(), events_.end(), [&](const auto& event) {
          return (event.kind == Kind::output) == output &&
                 static_cast<double>(event.counts.non_finite) >
                     options_.overflow_share *
                         static_cast<double>(event.counts.elements);
        });
    return static_cast<size_t>(found - events_.begin());
  }

  void fail(int module, const std::string& reason, bool overflowed) {
    LayerFinding& found = finding(module);
    found.fits = false;
    if (!runs_in_16bit(module)) {
      return;
    }
    found.judged = true;
    if (!found.failed) {
      found.reason = reason;
    }
    found.failed = true;
    found.overflowed = found.overflowed || overflowed;
  }

  static std::string overflow_text(const LayerEvent& event) {
    return c10::str(
        event.counts.non_finite,
        " of ",
        event.counts.elements,
        " elements are inf or NaN, the others reach ",
        event.counts.amax);
  }

  // Bad output after a good one: the layer itself; if that one runs in float32,
  // what lies between it and the layer before, whose dtype those ops have.
  void blame_output(size_t index) {
    const LayerEvent& event = events_[index];
    if (runs_in_16bit(event.module)) {
      fail(event.module, "output: " + overflow_text(event), true);
    } else if (before_[index] >= 0) {
      fail(
          before_[index],
          "output of the float32 layer '" +
              paths_[static_cast<size_t>(event.module)] +
              "' that follows: " + overflow_text(event),
          true);
    }
  }

  void blame_gradient(size_t index, const StepOutcome& outcome) {
    if (outcome.skipped.has_value() &&
        outcome.streak < options_.overflow_patience) {
      return; // the scale backs off
    }
    const LayerEvent& event = events_[index];
    const auto streak =
        outcome.skipped.has_value()
            ? c10::str(" after ", outcome.streak, " skipped steps in a row")
            : std::string();
    const auto text = overflow_text(event) + streak;
    fail_gradient(event.kind, event.module, before_[index], text, true);
    for (LayerFinding& found : findings_) {
      found.at_once = found.failed && outcome.skipped.has_value();
    }
  }

  // Both, see was_in_16bit().
  void fail_gradient(
      Kind kind,
      int module,
      int from,
      const std::string& text,
      bool overflowed) {
    fail(module, c10::str(name_of(kind), ": ", text), overflowed);
    if (from >= 0) {
      fail(
          from,
          "gradient that it passes to '" + paths_[static_cast<size_t>(module)] +
              "': " + text,
          overflowed);
    }
  }

  void judge_all() {
    for (const LayerEvent& event : events_) {
      finding(event.module).judged = true;
    }
    // Layers whose input comes from different ones have several neighbours.
    std::map<std::tuple<Kind, int, int>, TensorCounts> sums;
    for (size_t i = 0; i < events_.size(); ++i) {
      sums[{events_[i].kind, events_[i].module, before_[i]}] +=
          events_[i].counts;
      const bool wide = events_[i].kind == Kind::output && before_[i] >= 0 &&
                        !finding_output_fits(before_[i]);
      if (wide) { // it would have to read what 16 bits don't hold
        finding(events_[i].module).fits = false;
      }
    }
    for (const auto& [key, counts] : sums) {
      const auto [kind, module, from] = key;
      judge_tensor(kind, module, from, counts);
    }
  }

  bool finding_output_fits(int module) {
    const auto& output = finding(module).statistics[0];
    return output.overflow == 0 &&
           output.amax * options_.return_margin <= largest(options_.dtype);
  }

  void judge_tensor(
      Kind kind, int module, int from, const TensorCounts& counts) {
    const bool was_16bit = was_in_16bit(kind, module, from);
    const auto tensor = shares(counts, zero_rule(module, kind, was_16bit));
    if (!was_16bit && counts.elements > 0) {
      auto& zeros = finding(module).exact_zeros[static_cast<size_t>(kind)];
      zeros = std::max(
          zeros,
          static_cast<double>(counts.zero) /
              static_cast<double>(counts.elements));
    }
    if (was_16bit && tensor.elements >= kEvidence) {
      judge_losses(kind, module, kind == Kind::output ? -1 : from, tensor);
    }
    if (!fits(kind, tensor)) {
      finding(module).fits = false;
      if (kind == Kind::output_gradient && from >= 0) {
        finding(from).fits = false;
      }
    }
  }

  void judge_losses(
      Kind kind, int module, int from, const TensorStatistics& tensor) {
    const bool underflow = tensor.underflow > options_.underflow_share;
    const bool subnormal = tensor.subnormal > options_.subnormal_share;
    if (!underflow && !subnormal) {
      return;
    }
    const auto text = c10::str(
        underflow ? "underflow " : "subnormal ",
        underflow ? tensor.underflow : tensor.subnormal,
        " > ",
        underflow ? options_.underflow_share : options_.subnormal_share,
        " of ",
        tensor.elements,
        " elements, which reach ",
        tensor.amax);
    fail_gradient(kind, module, from, text, false);
  }

  bool fits(Kind kind, const TensorStatistics& tensor) const {
    if (tensor.elements == 0) {
      return true;
    }
    // The scale of gradients is the scaler's to choose: no margin above.
    const double margin = kind == Kind::output ? options_.return_margin : 1;
    const bool range =
        tensor.overflow == 0 && tensor.amax * margin <= largest(options_.dtype);
    return range && (tensor.elements < kEvidence ||
                     (clean(tensor.underflow, options_.underflow_share) &&
                      clean(tensor.subnormal, options_.subnormal_share)));
  }

  bool clean(double share, double limit) const {
    return limit >= 1 || share * options_.return_margin <= limit;
  }

  const std::vector<LayerEvent>& events_;
  const PrecisionControllerOptions& options_;
  const std::vector<std::string>& paths_;
  const std::vector<PerKind>& structural_;
  std::vector<LayerFinding> findings_;
  std::vector<int> before_;
};

} // namespace

std::vector<LayerFinding> judge_step(
    const std::vector<LayerEvent>& events,
    const PrecisionControllerOptions& options,
    const std::vector<std::string>& paths,
    const std::vector<PerKind>& structural,
    const StepOutcome& outcome) {
  return StepJudge(events, options, paths, structural).judge(outcome);
}

} // namespace ampkit
