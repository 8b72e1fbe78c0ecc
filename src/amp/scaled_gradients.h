#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ampkit {

/// Which gradients are multiplied by a loss scale at the moment: those of the
/// parameters that a scaler knows, from its scale() on, until it unscales them
/// or the iteration ends. So that who changes gradients by their size, as
/// clipping does, can refuse them.
///
/// Each GradScaler has one. Any thread may ask about a parameter.
class ScaledGradients {
 public:
  ScaledGradients();
  ~ScaledGradients();
  ScaledGradients(const ScaledGradients&) = delete;
  ScaledGradients& operator=(const ScaledGradients&) = delete;

  /// These are the scaler's. Keeps no reference to them.
  void know(const std::vector<at::Tensor>& parameters);

  /// A loss was scaled, whose backward pass adds to gradients.
  void begin();

  /// The gradients of these are no longer scaled. Knows them from now on.
  void unscaled(const std::vector<at::Tensor>& parameters);

  /// The iteration is over.
  void end();

  /// Whether any scaler says so of the gradient of `parameter`.
  static bool has(const at::Tensor& parameter);

 private:
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    WeakTensor parameter; // so that its address is not another's
    int64_t unscaled_in = 0; // which iteration
  };

  Entry& entry_of(const at::Tensor& parameter);

  bool scaling_ = false;
  int64_t iteration_ = 1;
  std::unordered_map<const c10::TensorImpl*, Entry> entries_;
};

} // namespace ampkit
