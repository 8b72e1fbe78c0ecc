#include "diagnose/judge.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "diagnose/op_traits.h"

namespace ampkit::diagnose {
namespace {

constexpr double kExploded = 1e3; // growth of weights since the first step
constexpr double kStalled = 0.9; // zeros in a gradient
constexpr double kUnderflowed = 0.5; // of an op's results

template <size_t N>
bool is_one_of(
    std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 6> kDivisions{
    "div", "divide", "true_divide", "reciprocal", "addcdiv", "remainder"};
constexpr std::array<std::string_view, 8> kLogarithms{
    "log",
    "log2",
    "log10",
    "log1p",
    "xlogy",
    "logit",
    "binary_cross_entropy",
    "logsumexp"};
constexpr std::array<std::string_view, 5> kRoots{
    "sqrt", "rsqrt", "pow", "float_power", "acos"};

// Unless nothing is known of them.
bool may_be_zero(const TapeOp& op) {
  if (!op.evidence.has_value()) {
    return true;
  }
  const auto& inputs = op.evidence->inputs;
  return std::any_of(inputs.begin(), inputs.end(), [](const auto& summary) {
    return summary.zeros > 0;
  });
}

bool is_softmax(const TapeOp& op) {
  return op.name.find("softmax") != std::string::npos ||
         op.name.find("scaled_dot_product") != std::string::npos;
}

bool has_infinite_input(const Tape& tape, const TapeOp& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](int32_t value) {
    return tape.values[static_cast<size_t>(value)].flags.inf();
  });
}

Verdict verdict_of_name(const Tape& tape, const TapeOp& op) {
  const auto base = base_name(op.name);
  const auto& made = tape.values[static_cast<size_t>(op.output)].flags;
  if (is_softmax(op) && made.nan && has_infinite_input(tape, op)) {
    return Verdict::masked_row;
  }
  if (is_one_of(base, kDivisions) && may_be_zero(op)) {
    return Verdict::division;
  }
  if (is_one_of(base, kLogarithms)) {
    return Verdict::logarithm;
  }
  if (is_one_of(base, kRoots) &&
      (made.nan || base == "rsqrt" || may_be_zero(op))) {
    return Verdict::root;
  }
  if (made.nan && has_infinite_input(tape, op)) {
    return Verdict::inf_minus_inf;
  }
  return made.nan ? Verdict::invalid_operation : Verdict::forward_overflow;
}

// The op in float64; null: it was not run.
const Replay* replay_of(const TapeOp& op) {
  return op.evidence.has_value() && op.evidence->replay.has_value()
             ? &*op.evidence->replay
             : nullptr;
}

Verdict verdict_in_backward(
    const Tape& tape, const TapeOp& op, const StepContext& context) {
  const auto& made = tape.values[static_cast<size_t>(op.output)];
  const Replay* replay = replay_of(op);
  const bool overflow = replay != nullptr ? replay->finite : !made.flags.nan;
  if (!overflow) {
    return is_softmax(op) ? Verdict::masked_row : Verdict::singular_gradient;
  }
  if (!context.scale.has_value()) {
    return Verdict::backward_overflow;
  }
  const double scale = context.scale.value();
  if (scale <= context.scale_floor) {
    return Verdict::scale_at_floor;
  }
  const double largest = made.dtype == at::kHalf ? 65504.0 : 0x1.FEp127;
  const bool fits = replay == nullptr || replay->amax / scale <= largest;
  return fits ? Verdict::handled_overflow : Verdict::backward_overflow;
}

Verdict verdict_of_op(
    const Tape& tape, const TapeOp& op, const StepContext& context) {
  if (op.optimizer) {
    return Verdict::optimizer;
  }
  if (op.in_backward) {
    return verdict_in_backward(tape, op, context);
  }
  const Replay* replay = replay_of(op);
  return replay != nullptr && replay->finite ? Verdict::forward_overflow
                                             : verdict_of_name(tape, op);
}

Verdict verdict_of_source(const TapeValue& value) {
  switch (value.source) {
    case Source::parameter:
      return Verdict::bad_parameter;
    case Source::buffer:
      return Verdict::bad_buffer;
    default:
      return Verdict::bad_input;
  }
}

// Weights that blew up overflow somewhere in forward; that is where it shows,
// not where it came from.
void blame_growth(
    const NamedTensors& names, const StepContext& context, Finding& finding) {
  if (context.growth >= kExploded && context.grown >= 0) {
    finding.verdict = Verdict::optimizer;
    finding.parameter = names.entry(context.grown).name;
  }
}

Finding finding_of(
    const Tape& tape,
    const NamedTensors& names,
    const StepContext& context,
    const Origin& origin) {
  Finding finding = describe_origin(tape, names, origin);
  if (origin.source >= 0) {
    const auto& value = tape.values[static_cast<size_t>(origin.source)];
    finding.verdict = verdict_of_source(value);
    if (value.source == Source::input && value.name >= 0) {
      finding.input = context.inputs.at(static_cast<size_t>(value.name));
    }
    return finding;
  }
  finding.verdict =
      verdict_of_op(tape, tape.ops[static_cast<size_t>(origin.op)], context);
  if (finding.verdict == Verdict::forward_overflow) {
    blame_growth(names, context, finding);
  }
  return finding;
}

// A gradient of hardly anything but zeros, after an op that lost what float64
// kept.
std::optional<Finding> find_underflow(
    const Tape& tape, const NamedTensors& names) {
  const bool stalled =
      std::any_of(tape.sinks.begin(), tape.sinks.end(), [](const Sink& sink) {
        return sink.kind == Sink::Kind::gradient && sink.zeros >= kStalled;
      });
  const auto op =
      std::find_if(tape.ops.begin(), tape.ops.end(), [](const TapeOp& each) {
        return each.lost >= kUnderflowed;
      });
  if (!stalled || op == tape.ops.end()) {
    return std::nullopt;
  }
  Finding finding = describe_origin(
      tape, names, {.op = static_cast<int32_t>(op - tape.ops.begin())});
  finding.verdict = Verdict::gradient_underflow;
  return finding;
}

Finding damaged_by_update(
    const NamedTensors& names, const StepContext& context) {
  const auto& entry = names.entry(context.damaged);
  Finding finding{
      .verdict = Verdict::optimizer,
      .direction = Direction::optimizer,
      .module = names.module_path(entry.module),
      .parameter = entry.name};
  finding.output = summarize(entry.tensor);
  return finding;
}

} // namespace

std::optional<Finding> judge(
    const Tape& tape, const NamedTensors& names, const StepContext& context) {
  std::optional<Finding> finding;
  if (const auto origin = find_origin(tape)) {
    finding = finding_of(tape, names, context, *origin);
  } else if (context.damaged >= 0) {
    finding = damaged_by_update(names, context);
  } else {
    finding = find_underflow(tape, names);
  }
  if (finding.has_value()) {
    finding->step = context.step;
    finding->rank = context.rank;
  }
  return finding;
}

} // namespace ampkit::diagnose
