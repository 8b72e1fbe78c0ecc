#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "amp/layer_statistics.h"
#include "amp/module_binding.h"

namespace ampkit {

/// One tensor of a layer that passed by in an observed step.
struct LayerEvent {
  enum class Kind : uint8_t { output, output_gradient, parameter_gradient };
  Kind kind = Kind::output;
  int module = -1;
  at::ScalarType dtype = at::ScalarType::Undefined;
  TensorCounts counts;
};

/// Counts the outputs of layers, their gradients and those of parameters, in
/// the order in which they come. Thread-safe.
class LayerRecorder : public ModuleObserver,
                      public std::enable_shared_from_this<LayerRecorder> {
 public:
  /// `low`: from which dtype float32 tensors are judged.
  explicit LayerRecorder(at::ScalarType low) : low_(low) {}

  /// `ignore`: outputs are only numbered, see outputs().
  enum class Mode : uint8_t { ignore, record };
  void set_mode(Mode mode, int64_t max_elements);

  /// Sees the gradients that `parameter` gets from now on until remove_hooks(),
  /// which leaves no trace in it. Not while a backward pass runs.
  void watch_parameter(int module, const at::Tensor& parameter);
  void remove_hooks();

  void on_output(int module, const at::Tensor& output) override;

  /// What was recorded since the last call. Waits for the device.
  std::vector<LayerEvent> take();

  /// Outputs that came by since the last call, recorded or not.
  int64_t take_output_count() { return outputs_.exchange(0); }

  /// Unless ignoring.
  void record(LayerEvent::Kind kind, int module, const at::Tensor& tensor);

 private:
  // On the node that adds to a parameter's gradient: a tensor's own hooks leave
  // an entry in it when they are removed.
  struct Hook {
    // A std::shared_ptr or a c10::intrusive_ptr, by LibTorch's version.
    decltype(torch::autograd::impl::grad_accumulator(
        std::declval<const at::Tensor&>())) accumulator;
    uintptr_t key = 0;
  };

  const at::ScalarType low_;
  std::atomic<Mode> mode_ = Mode::ignore;
  std::atomic<int64_t> max_elements_ = 1;
  std::atomic<int64_t> generation_ = 0; // take() calls: old hooks are silent
  std::atomic<int64_t> outputs_ = 0;
  std::vector<Hook> hooks_;

  std::mutex mutex_;
  std::vector<LayerEvent> events_;
  std::vector<at::Tensor> on_device_; // counts of events, undefined: known
};

} // namespace ampkit
