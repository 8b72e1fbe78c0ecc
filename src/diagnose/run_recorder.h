#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <ATen/record_function.h>

#include "diagnose/named_tensors.h"
#include "diagnose/op_traits.h"

namespace ampkit::diagnose {

/// A top-level op of a forward pass that made a floating-point tensor.
struct RecordedOp {
  size_t index = 0; ///< from 0, in the order in which they ended
  std::string name; ///< "aten::linear"
  /// That whose parameter it uses, else that of the op before it; -1: none yet.
  int module = -1;
  bool uses_parameter = false;
};

/// Is told of each, on the thread that runs it, with records off.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void on_output(const RecordedOp& op, const at::Tensor& output) = 0;
  /// The op's result from float64 copies of the arguments, where it has one.
  virtual void on_float64(const RecordedOp& op, const at::Tensor& output) = 0;
  /// The gradient that reached the op's output.
  virtual void on_gradient(const RecordedOp& op, const at::Tensor& value) = 0;
};

/// While it lives, tells a listener of the ops of the calling thread that run
/// with gradients on, not those inside ops or in backward. Views and casts are
/// left out. What a listener throws is lost: LibTorch swallows it.
class RunRecorder {
 public:
  /// `in_float64`: run each op once more.
  RunRecorder(
      std::shared_ptr<const NamedTensors> names,
      RunListener& listener,
      bool in_float64);
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder(RunRecorder&&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;
  RunRecorder& operator=(RunRecorder&&) = delete;

  struct State;

 private:
  std::shared_ptr<State> state_;
  at::CallbackHandle handle_;
};

} // namespace ampkit::diagnose
