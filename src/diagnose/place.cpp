#include <algorithm>

#include "diagnose/judge.h"

namespace ampkit::diagnose {
namespace {

// "encoder.3.attention" for "encoder.3.attention.qkv" and
// "encoder.3.attention.out"; both are paths of modules.
std::string module_around(const std::string& a, const std::string& b) {
  size_t end = 0;
  for (size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool a_ends = i == a.size() || a[i] == '.';
    const bool b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) {
      end = i;
    }
    if (i == a.size() || i == b.size() || a[i] != b[i]) {
      break;
    }
  }
  return a.substr(0, end);
}

// An op that uses no parameter stands between the modules used before and
// after it.
void place_between(
    const Tape& tape,
    const NamedTensors& names,
    int32_t op,
    int64_t micro_batch,
    Finding& finding) {
  int32_t before = -1;
  int32_t after = -1;
  for (const auto& use : tape.modules) {
    if (use.micro_batch != micro_batch) {
      continue;
    }
    if (use.op <= op) {
      before = use.module;
    } else if (after < 0) {
      after = use.module;
    }
  }
  if (before >= 0) {
    finding.after = names.module_path(before);
  }
  if (after >= 0) {
    finding.before = names.module_path(after);
  }
  if (before >= 0 && after >= 0) {
    finding.module = module_around(finding.after, finding.before);
  }
}

void place_op(
    const Tape& tape,
    const NamedTensors& names,
    int32_t number,
    Finding& finding) {
  const auto& op = tape.ops[static_cast<size_t>(number)];
  finding.op = op.name;
  finding.caller = op.caller;
  finding.node = op.node;
  finding.micro_batch = op.micro_batch;
  int32_t place = number;
  int32_t module = op.module;
  int32_t named = op.named;
  if (op.forward_op >= 0) {
    const auto& forward = tape.forward[static_cast<size_t>(op.forward_op)];
    finding.forward_op = forward.name;
    finding.micro_batch = forward.micro_batch;
    place = forward.op;
    module = forward.module;
    named = forward.named;
  }
  finding.direction = op.optimizer      ? Direction::optimizer
                      : !op.in_backward ? Direction::forward
                                        : Direction::backward;
  if (named >= 0) {
    finding.parameter = names.entry(named).name;
  }
  if (module >= 0) {
    finding.module = names.module_path(module);
  } else {
    place_between(tape, names, place, finding.micro_batch, finding);
  }
  if (op.evidence.has_value()) {
    finding.inputs = op.evidence->inputs;
    finding.output = op.evidence->output;
    finding.source_line = op.evidence->source_line;
    if (op.evidence->replay.has_value() && op.evidence->replay->finite) {
      finding.wide_amax = op.evidence->replay->amax;
    }
  }
}

} // namespace

Finding describe_origin(
    const Tape& tape, const NamedTensors& names, const Origin& origin) {
  Finding finding;
  finding.spread = origin.spread;
  if (origin.op >= 0) {
    place_op(tape, names, origin.op, finding);
  }
  if (origin.source >= 0) {
    const auto& value = tape.values[static_cast<size_t>(origin.source)];
    if (value.source == Source::parameter || value.source == Source::buffer) {
      const auto& entry = names.entry(value.name);
      finding.parameter = entry.name;
      finding.module = names.module_path(entry.module);
      finding.after.clear();
      finding.before.clear();
    }
    if (value.summary >= 0) {
      const auto& summary = tape.sources[static_cast<size_t>(value.summary)];
      finding.inputs = {summary};
      finding.output = {};
      if (value.source == Source::input || value.source == Source::unknown) {
        finding.sample = summary.first_bad_row;
      }
    }
  }
  return finding;
}

} // namespace ampkit::diagnose
