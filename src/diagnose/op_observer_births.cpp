#include <algorithm>

#include "diagnose/op_observer.h"
#include "diagnose/op_replay.h"
#include "diagnose/op_source.h"

namespace ampkit::diagnose {
namespace {

constexpr double kLostShare = 0.5;
constexpr double kSuspectZeros = 0.9;

// What an argument was before the op; of one that was written into nothing is
// left.
std::vector<TensorSummary> summarize_arguments(
    const Frame& frame, const at::Tensor& output) {
  std::vector<TensorSummary> result;
  for (const auto& argument : frame.arguments) {
    if (argument.isTensor() && is_watched(argument.toTensor())) {
      const auto& tensor = argument.toTensor();
      const bool written = storage_of(tensor) == storage_of(output);
      result.push_back(written ? TensorSummary{} : summarize(tensor));
    }
  }
  return result;
}

} // namespace

void OpObserver::look_for_birth(
    const at::Tensor& output, const Frame& frame, TapeOp& op) {
  const auto& made = tape_.values[static_cast<size_t>(op.output)];
  if (!made.flags.any() || frame.is_node || evidence_left_ == 0) {
    return;
  }
  Flags came;
  for (const int32_t input : op.inputs) {
    came = came | tape_.values[static_cast<size_t>(input)].flags;
  }
  const bool birth = !came.any() || (made.flags.nan && !came.nan);
  if (!birth || (op.constant_inf && !made.flags.nan)) {
    return;
  }
  --evidence_left_;
  op.evidence = Evidence{
      .inputs = summarize_arguments(frame, output),
      .output = summarize(output),
      .source_line = script_source_line()};
  doubt_inputs(frame, *op.evidence);
  if (!frame.traits.once_only || frame.name == "aten::copy_") {
    op.evidence->replay = replay_in_float64(*frame.fn, frame.arguments);
  }
}

// The summaries may show that an input was bad although nobody saw it become
// so: a kernel wrote into it past the dispatcher. Then that is the birth.
void OpObserver::doubt_inputs(const Frame& frame, const Evidence& evidence) {
  size_t summary = 0;
  for (const auto& argument : frame.arguments) {
    if (!argument.isTensor() || !is_watched(argument.toTensor())) {
      continue;
    }
    const auto& seen = evidence.inputs.at(summary++);
    const int32_t held = held_by(argument.toTensor());
    if (held < 0 || seen.non_finite() == 0) {
      continue;
    }
    auto& value = tape_.values[static_cast<size_t>(held)];
    if (value.source == Source::parameter || value.source == Source::buffer) {
      continue; // running statistics: the op itself wrote into them
    }
    auto& flags = value.flags;
    flags = flags | Flags{
                        .nan = seen.nans > 0,
                        .positive_inf = seen.positive_infs > 0,
                        .negative_inf = seen.negative_infs > 0};
  }
}

void OpObserver::look_for_lost_values(
    const at::Tensor& output, const Frame& frame, TapeOp& op) {
  const bool may_lose = output.scalar_type() == at::kHalf &&
                        !frame.node.empty() && !frame.is_node &&
                        reads_at_once(output) && replays_left_ > 0;
  const bool can_replay =
      !frame.traits.once_only || frame.name == "aten::copy_";
  if (!may_lose || !can_replay) {
    return;
  }
  const double zeros = share_of_zeros(output);
  if (zeros < kSuspectZeros) {
    return;
  }
  --replays_left_;
  if (const auto replay = replay_in_float64(*frame.fn, frame.arguments)) {
    op.lost = std::max(0.0, zeros - replay->zeros);
    lost_ = lost_ || op.lost >= kLostShare;
  }
}

} // namespace ampkit::diagnose
