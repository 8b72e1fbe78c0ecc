#include "diagnose_output.h"

#include <cmath>

#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ampkit::app {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

Json json_summary(const diagnose::TensorSummary& summary) {
  return {
      {"dtype", c10::toString(summary.dtype)},
      {"sizes", summary.sizes},
      {"min", number(summary.min)},
      {"max", number(summary.max)},
      {"mean", number(summary.mean)},
      {"zeros", summary.zeros},
      {"subnormals", summary.subnormals},
      {"nans", summary.nans},
      {"positive_infs", summary.positive_infs},
      {"negative_infs", summary.negative_infs},
      {"elements", summary.elements}};
}

bool has_numbers(const diagnose::TensorSummary& summary) {
  return summary.dtype != c10::ScalarType::Undefined;
}

Json json_finding(const diagnose::Finding& finding) {
  Json json{
      {"verdict", to_string(finding.verdict)},
      {"direction", to_string(finding.direction)},
      {"op", finding.op},
      {"caller", finding.caller},
      {"forward_op", finding.forward_op},
      {"node", finding.node},
      {"module", finding.module},
      {"after", finding.after},
      {"before", finding.before},
      {"parameter", finding.parameter},
      {"input", finding.input},
      {"sample", finding.sample},
      {"source_line", finding.source_line},
      {"step", finding.step},
      {"micro_batch", finding.micro_batch},
      {"rank", finding.rank},
      {"spread", finding.spread},
      {"arguments", Json::array()}};
  for (const auto& input : finding.inputs) {
    if (has_numbers(input)) {
      json["arguments"].push_back(json_summary(input));
    }
  }
  json["result"] =
      has_numbers(finding.output) ? json_summary(finding.output) : Json();
  json["wide_amax"] = finding.wide_amax ? number(*finding.wide_amax) : Json();
  json["about_precision"] = is_about_precision(finding.verdict);
  json["remedy"] = remedy(finding.verdict);
  return json;
}

Json json_capsule(const diagnose::Capsule& capsule) {
  return {
      {"path", capsule.path},
      {"step", capsule.step},
      {"rank", capsule.rank},
      {"world_size", capsule.world_size},
      {"reason", to_string(capsule.reason)},
      {"planted", capsule.faults},
      {"threads", capsule.threads},
      {"ampkit", capsule.ampkit_version},
      {"torch", capsule.torch_version}};
}

Json json_replay(const diagnose::ReplayResult& replay) {
  const bool one = replay.loss.defined() && replay.loss.numel() == 1;
  return {
      {"loss", one ? number(replay.loss.item<double>()) : Json()},
      {"outcome", replay.outcome},
      {"grad_norm", number(replay.grad_norm)},
      {"handled_overflows", replay.handled_overflows},
      {"identical", replay.identical},
      {"differences", replay.differences}};
}

Json json_flight(const diagnose::FlightLog& log) {
  Json json{
      {"rank", log.rank},
      {"process", log.process},
      {"host", log.host},
      {"recorded", log.recorded},
      {"current_step", log.current_step},
      {"phase", log.phase},
      {"ended", log.ended ? Json(*log.ended) : Json()},
      {"torn", log.torn},
      {"steps", Json::array()}};
  for (const auto& entry : log.entries) {
    json["steps"].push_back(
        {{"step", entry.step},
         {"loss", number(entry.loss)},
         {"scale", number(entry.scale)},
         {"grad_norm", number(entry.grad_norm)},
         {"grad_max", number(entry.grad_max)},
         {"bad_values", entry.bad_values},
         {"skipped", entry.skipped},
         {"fault", entry.fault},
         {"verdict", entry.verdict}});
  }
  return json;
}

std::string verdict_text(const diagnose::ReplayResult& replay) {
  if (replay.finding) {
    return to_string(*replay.finding);
  }
  if (replay.handled_overflows > 0) {
    return "gradients overflowed, which the loss scaler handles: the step is "
           "skipped and the scale shrinks. Nothing to cure unless it goes on "
           "for ever\n";
  }
  return "no value of this step was born bad\n";
}

std::string replay_text(
    const diagnose::Capsule& capsule, const diagnose::ReplayResult& replay) {
  std::string text = fmt::format(
      "{}: step {} of rank {}, saved because {}\n",
      capsule.path,
      capsule.step,
      capsule.rank,
      to_string(capsule.reason));
  if (!capsule.faults.empty()) {
    text += "faults were planted in this run: " + capsule.faults + "\n";
  }
  text += "replayed: " + describe_outcome(replay) + "\n";
  if (capsule.world_size > 1) {
    text += fmt::format(
        "it was one of {} ranks; the gradients of the others are not in it\n",
        capsule.world_size);
  }
  return text + "\n" + verdict_text(replay);
}

} // namespace

std::string text_of(const Diagnosis& diagnosis) {
  std::string text;
  if (diagnosis.flight) {
    text += to_string(*diagnosis.flight) + "\n";
  }
  if (diagnosis.capsules.size() > 1) {
    text += fmt::format("{} capsules:\n", diagnosis.capsules.size());
    for (const auto& path : diagnosis.capsules) {
      text += "  " + path + "\n";
    }
  }
  if (diagnosis.capsule && diagnosis.replay) {
    return text + replay_text(*diagnosis.capsule, *diagnosis.replay);
  }
  return text +
         "no step was saved: none had a loss that was not finite, or so many "
         "skips in a row that one was\n";
}

std::string json_of(const Diagnosis& diagnosis) {
  const auto& replay = diagnosis.replay;
  const Json json{
      {"capsule",
       diagnosis.capsule ? json_capsule(*diagnosis.capsule) : Json()},
      {"replay", replay ? json_replay(*replay) : Json()},
      {"finding",
       replay && replay->finding ? json_finding(*replay->finding) : Json()},
      {"capsules", diagnosis.capsules},
      {"flight", diagnosis.flight ? json_flight(*diagnosis.flight) : Json()}};
  return json.dump(2) + "\n";
}

} // namespace ampkit::app
