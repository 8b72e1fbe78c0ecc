#include <ampkit/diagnose/replay.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include <ATen/Parallel.h>
#include <ampkit/io/rng_state.h>
#include <ampkit/version.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/version.h>

namespace ampkit::diagnose {
namespace {

/// Puts back what a replay changes of the process.
class ProcessState {
 public:
  explicit ProcessState(int64_t threads) {
    if (threads > 0) {
      at::set_num_threads(static_cast<int>(threads));
    }
  }
  ~ProcessState() {
    at::set_num_threads(threads_);
    io::set_rng_state(rng_);
  }
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

 private:
  int threads_ = at::get_num_threads();
  io::StateDict rng_ = io::rng_state();
};

// NaN equals NaN: what is compared are results, not numbers.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::equal(a.isnan(), b.isnan()) &&
         at::equal(
             a.nan_to_num(0, INFINITY, -INFINITY),
             b.nan_to_num(0, INFINITY, -INFINITY));
}

bool same_number(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

std::string loss_text(const at::Tensor& loss) {
  if (!loss.defined()) {
    return "not known";
  }
  std::ostringstream out;
  if (loss.numel() == 1) {
    const auto value = loss.item<double>();
    out << (std::isnan(value) ? NAN : value); // without its sign
  } else {
    out << "of " << loss.numel() << " elements";
  }
  return out.str();
}

void compare_results(const Capsule& then, ReplayResult& now) {
  auto& differs = now.differences;
  if (!same_bits(then.loss, now.loss)) {
    differs.push_back(
        "loss " + loss_text(now.loss) + ", then " + loss_text(then.loss));
  }
  // Without the gradients of the other ranks no more can come out the same.
  const bool alone = then.world_size == 1;
  if (alone && !then.outcome.empty() && then.outcome != now.outcome) {
    differs.push_back(now.outcome + ", then " + then.outcome);
  }
  if (alone && !same_number(then.grad_norm, now.grad_norm)) {
    differs.push_back(
        c10::str("gradient norm ", now.grad_norm, ", then ", then.grad_norm));
  }
  now.identical = differs.empty();
}

void compare_places(const Capsule& then, ReplayResult& now) {
  if (then.ampkit_version != AMPKIT_VERSION) {
    now.differences.push_back(
        "ampkit " AMPKIT_VERSION ", then " + then.ampkit_version);
  }
  if (then.torch_version != TORCH_VERSION) {
    now.differences.push_back(
        "LibTorch " TORCH_VERSION ", then " + then.torch_version);
  }
}

// A Watch that saw one step only does not know what the weights were like.
void blame_growth_since(
    const Capsule& capsule,
    const torch::nn::Module& model,
    std::optional<Finding>& finding) {
  constexpr double kExplodedWeights = 1e3; // as within a Watch
  constexpr double kSmallestFirst = 0.01;
  if (!finding || finding->verdict != Verdict::forward_overflow) {
    return;
  }
  double most = kExplodedWeights;
  for (const auto& item : model.named_parameters()) {
    const auto* first = capsule.first_amax.find(item.key());
    const auto* amax = first ? std::get_if<double>(first) : nullptr;
    if (amax == nullptr || !std::isfinite(*amax)) {
      continue;
    }
    const double now =
        item.value().detach().abs().max().to(at::kDouble).item<double>();
    const double times = now / std::max(*amax, kSmallestFirst);
    if (times >= most) {
      most = times;
      finding->verdict = Verdict::optimizer;
      finding->parameter = item.key();
    }
  }
}

void watch_batches(const Capsule& capsule, Watch::Step& step) {
  const bool several = capsule.batches.size() > 1;
  for (size_t i = 0; i < capsule.batches.size(); ++i) {
    for (const auto& [name, value] : capsule.batches[i].entries()) {
      const auto* tensor = std::get_if<at::Tensor>(&value);
      if (tensor != nullptr && tensor->is_floating_point()) {
        step.input(
            several ? c10::str(name, " of micro-batch ", i) : name, *tensor);
      }
    }
  }
}

} // namespace

ReplayResult replay(
    const Capsule& capsule,
    const torch::nn::Module& model,
    const ReplayCallbacks& callbacks,
    const WatchOptions& options) {
  TORCH_CHECK_VALUE(
      options.interval == 1,
      "replay: interval must be 1, for there is one step, got ",
      options.interval);
  TORCH_CHECK_VALUE(
      callbacks.restore && callbacks.run,
      "replay: a callback is empty; both restore and run are needed");
  const ProcessState process(capsule.threads);
  callbacks.restore(capsule.state);
  auto watch_options = options;
  watch_options.rank = capsule.rank;
  Watch watch(model, watch_options);
  io::set_rng_state(capsule.state.subset("rng"));

  ReplayResult result;
  auto step = watch.step(capsule.step);
  watch_batches(capsule, step);
  const auto done = callbacks.run(step, capsule.batches);
  result.finding = step.finish();
  blame_growth_since(capsule, model, result.finding);
  result.handled_overflows = watch.handled_overflows();
  if (done.loss.defined()) {
    result.loss = done.loss.detach().cpu();
  }
  if (done.result.has_value()) {
    result.outcome = done.result->describe();
    result.grad_norm = done.result->grad_norm();
  }
  compare_results(capsule, result);
  compare_places(capsule, result);
  return result;
}

std::string describe_outcome(const ReplayResult& result) {
  std::string text = "loss " + loss_text(result.loss);
  if (!result.outcome.empty()) {
    text += ", " + result.outcome;
  }
  if (result.identical) {
    text += "; the same bits as then";
  }
  for (const auto& difference : result.differences) {
    text += "\n  differs: " + difference;
  }
  return text;
}

} // namespace ampkit::diagnose
