#include <ampkit/diagnose/compare.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <map>
#include <sstream>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include "diagnose/run_recorder.h"

namespace ampkit::diagnose {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct KeptOp {
  RecordedOp op;
  at::Tensor output;
  at::Tensor gradient; // undefined: none came
};

// Keeps what a run gives.
class KeepingListener : public RunListener {
 public:
  void on_output(const RecordedOp& op, const at::Tensor& output) override {
    ops.push_back({.op = op, .output = output.detach().clone()});
  }
  void on_float64(
      const RecordedOp& /*op*/, const at::Tensor& /*output*/) override {}
  void on_gradient(const RecordedOp& op, const at::Tensor& value) override {
    ops.at(op.index).gradient = value.detach().clone();
  }

  std::vector<KeptOp> ops;
};

// Holds what another run gives against it.
class ComparingListener : public RunListener {
 public:
  ComparingListener(
      const std::vector<KeptOp>& reference,
      const NamedTensors& names,
      std::string precision)
      : reference_(reference),
        names_(names),
        precision_(std::move(precision)) {}

  void on_output(const RecordedOp& op, const at::Tensor& output) override {
    if (!problem_.empty() || !is_expected(op, output)) {
      return;
    }
    last_ = output.detach();
    OpComparison comparison{
        .op = op.name,
        .uses_parameter = op.uses_parameter,
        .dtype = output.scalar_type(),
        .output = deviation(output, reference_[op.index].output),
        .added = kNoNumber};
    if (op.module >= 0) {
      comparison.module = names_.module_path(op.module);
    }
    ops.push_back(std::move(comparison));
  }

  void on_float64(const RecordedOp& op, const at::Tensor& output) override {
    if (problem_.empty() && output.sizes() == last_.sizes()) {
      ops[op.index].added = deviation(last_, output).relative;
    }
  }

  void on_gradient(const RecordedOp& op, const at::Tensor& value) override {
    if (op.index >= ops.size()) {
      return; // after a problem
    }
    const auto& expected = reference_[op.index].gradient;
    if (expected.defined()) {
      ops[op.index].gradient = deviation(value, expected);
    }
  }

  /// Throws if the run was not the reference in another precision.
  void check() const {
    TORCH_CHECK(problem_.empty(), problem_);
    TORCH_CHECK(
        ops.size() == reference_.size(),
        "compare_precisions: the run in ",
        precision_,
        " ended after ",
        ops.size(),
        " ops, the one that it is compared with has ",
        reference_.size());
  }

  std::vector<OpComparison> ops;

 private:
  bool is_expected(const RecordedOp& op, const at::Tensor& output) {
    std::string expected = "none";
    if (op.index < reference_.size()) {
      const auto& kept = reference_[op.index];
      if (kept.op.name == op.name && kept.output.sizes() == output.sizes()) {
        return true;
      }
      expected = c10::str(kept.op.name, " of ", kept.output.sizes());
    }
    problem_ = c10::str(
        "compare_precisions: op ",
        op.index,
        " of the run in ",
        precision_,
        " is ",
        op.name,
        " of ",
        output.sizes(),
        ", where the run it is compared with has ",
        expected,
        "; run() must do the same each time, and not decide by values");
    return false;
  }

  const std::vector<KeptOp>& reference_;
  const NamedTensors& names_;
  const std::string precision_;
  std::string problem_;
  at::Tensor last_;
};

// Sums in another order while it lives: one thread, and other kernels.
class OtherOrder {
 public:
  OtherOrder()
      : threads_(at::get_num_threads()),
        onednn_(at::globalContext().userEnabledMkldnn()) {
    at::set_num_threads(threads_ > 1 ? 1 : 2);
    at::globalContext().setUserEnabledMkldnn(!onednn_);
  }
  ~OtherOrder() {
    at::set_num_threads(threads_);
    at::globalContext().setUserEnabledMkldnn(onednn_);
  }
  OtherOrder(const OtherOrder&) = delete;
  OtherOrder(OtherOrder&&) = delete;
  OtherOrder& operator=(const OtherOrder&) = delete;
  OtherOrder& operator=(OtherOrder&&) = delete;

 private:
  int threads_;
  bool onednn_;
};

double size_of(const Deviation& deviation) {
  return deviation.finite ? deviation.relative : kInfinity;
}

double gradient_of(const OpComparison& op) {
  return op.gradient.has_value() ? size_of(*op.gradient) : 0;
}

bool departs(double error, double noise, double bound) {
  return error > bound && !(error <= 10 * noise);
}

std::string percent(double share) {
  if (!std::isfinite(share)) {
    return "not finite";
  }
  std::ostringstream out;
  out << std::setprecision(3) << 100 * share << " %";
  return out.str();
}

} // namespace

const OpComparison* Comparison::first_departure(
    const DepartureBounds& bounds) const {
  for (const OpComparison& op : ops) {
    if (departs(size_of(op.output), op.output_noise, bounds.output)) {
      return &op;
    }
  }
  // Backward goes from the last op to the first.
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (departs(gradient_of(*op), op->gradient_noise, bounds.gradient)) {
      return &*op;
    }
  }
  return nullptr;
}

std::vector<LayerComparison> Comparison::layers() const {
  std::vector<LayerComparison> result;
  std::map<std::string, size_t> places;
  for (const OpComparison& op : ops) {
    const auto [place, is_new] = places.emplace(op.module, result.size());
    if (is_new) {
      result.push_back({.module = op.module});
    }
    auto& layer = result[place->second];
    layer.output = std::max(layer.output, size_of(op.output));
    layer.gradient = std::max(layer.gradient, gradient_of(op));
    if (!std::isnan(op.added)) {
      layer.added = std::max(layer.added, op.added);
    }
  }
  std::stable_sort(
      result.begin(), result.end(), [](const auto& a, const auto& b) {
        return a.added > b.added;
      });
  return result;
}

Comparison compare_precisions(
    const torch::nn::Module& module,
    const PrecisionRun& run,
    const CompareOptions& options) {
  const auto names = std::make_shared<const NamedTensors>(module);
  const AutocastOptions plain;
  KeepingListener reference;
  Comparison result;
  {
    const RunRecorder recorder(names, reference, /*in_float64=*/false);
    result.reference_losses =
        run(options.device, options.against, plain).losses;
  }
  ComparingListener noise(reference.ops, *names, "the other order of sums");
  {
    const OtherOrder order;
    const RunRecorder recorder(names, noise, /*in_float64=*/false);
    run(options.device, options.against, plain);
  }
  noise.check();
  ComparingListener low(reference.ops, *names, options.precision.to_string());
  {
    const RunRecorder recorder(names, low, /*in_float64=*/true);
    result.losses =
        run(options.device, options.precision, options.policy.bind(module))
            .losses;
  }
  low.check();
  result.ops = std::move(low.ops);
  for (size_t i = 0; i < result.ops.size(); ++i) {
    result.ops[i].output_noise = size_of(noise.ops[i].output);
    result.ops[i].gradient_noise = gradient_of(noise.ops[i]);
  }
  return result;
}

std::string to_string(
    const Comparison& comparison, int layers, const DepartureBounds& bounds) {
  std::ostringstream out;
  for (size_t i = 0; i < comparison.losses.size(); ++i) {
    out << "loss of step " << i << ": " << std::setprecision(7)
        << comparison.losses[i] << ", in the reference "
        << comparison.reference_losses.at(i) << '\n';
  }
  if (const auto* op = comparison.first_departure(bounds)) {
    out << "departs first at " << op->op << " in "
        << (op->module.empty() ? "the network itself" : op->module)
        << ": result off by " << percent(size_of(op->output))
        << ", its gradient by " << percent(gradient_of(*op)) << '\n';
  } else {
    out << "departs nowhere\n";
  }
  out << "adds most: error of its ops | result | gradient\n";
  for (const auto& layer : comparison.layers()) {
    if (layers-- <= 0) {
      break;
    }
    out << "  " << (layer.module.empty() ? "(network)" : layer.module) << "  "
        << percent(layer.added) << " | " << percent(layer.output) << " | "
        << percent(layer.gradient) << '\n';
  }
  return out.str();
}

} // namespace ampkit::diagnose
