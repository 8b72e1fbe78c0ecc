#include <map>

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <ampkit/diagnose/compare.h>

#include "diagnose/run_recorder.h"

namespace ampkit::diagnose {
namespace {

// A module's result is that of the last of its ops in a row: a product, then
// the bias.
class ActivationListener : public RunListener {
 public:
  explicit ActivationListener(const NamedTensors& names) : names_(names) {}

  void on_output(const RecordedOp& op, const at::Tensor& output) override {
    if (!op.uses_parameter) {
      current_ = -1;
      return;
    }
    if (op.module != current_) {
      current_ = op.module;
      const auto& path = names_.module_path(op.module);
      const int use = ++uses_[op.module];
      name_ = path.empty() ? "(network)" : path;
      if (use > 1) {
        name_ += "#" + std::to_string(use);
      }
    }
    activations.set(
        name_,
        output.detach().to(
            at::kCPU,
            /*non_blocking=*/false,
            /*copy=*/true));
  }
  void on_float64(
      const RecordedOp& /*op*/, const at::Tensor& /*output*/) override {}
  void on_gradient(
      const RecordedOp& /*op*/, const at::Tensor& /*value*/) override {}

  io::StateDict activations;

 private:
  const NamedTensors& names_;
  int current_ = -1;
  std::string name_;
  std::map<int, int> uses_;
};

const at::Tensor* tensor_of(
    const io::StateDict& state, const std::string& name) {
  const auto* value = state.find(name);
  return value == nullptr ? nullptr : std::get_if<at::Tensor>(value);
}

} // namespace

io::StateDict record_activations(
    const torch::nn::Module& module,
    const PrecisionRun& run,
    const CompareOptions& options) {
  const auto names = std::make_shared<const NamedTensors>(module);
  ActivationListener listener(*names);
  const RunRecorder recorder(names, listener, /*in_float64=*/false);
  run(options.device, options.precision, options.policy.bind(module));
  return listener.activations;
}

const ActivationComparison::Entry* ActivationComparison::first_departure(
    double bound) const {
  for (const Entry& entry : entries) {
    if (!entry.deviation.finite || entry.deviation.relative > bound) {
      return &entry;
    }
  }
  return nullptr;
}

ActivationComparison compare_activations(
    const io::StateDict& value, const io::StateDict& reference) {
  ActivationComparison result;
  for (const auto& [name, entry] : reference.entries()) {
    const auto* expected = std::get_if<at::Tensor>(&entry);
    if (expected == nullptr) {
      continue;
    }
    const auto* found = tensor_of(value, name);
    if (found == nullptr) {
      result.left_out.push_back("only in the reference: " + name);
    } else if (found->sizes() != expected->sizes()) {
      result.left_out.push_back(c10::str(
          "another shape: ",
          name,
          " is ",
          found->sizes(),
          ", in the reference ",
          expected->sizes()));
    } else {
      result.entries.push_back(
          {.name = name, .deviation = deviation(*found, *expected)});
    }
  }
  for (const auto& [name, entry] : value.entries()) {
    if (tensor_of(reference, name) == nullptr) {
      result.left_out.push_back("not in the reference: " + name);
    }
  }
  TORCH_CHECK(
      !result.entries.empty(),
      "compare_activations: nothing to compare; are both of one network?\n  ",
      c10::Join("\n  ", result.left_out));
  return result;
}

} // namespace ampkit::diagnose
