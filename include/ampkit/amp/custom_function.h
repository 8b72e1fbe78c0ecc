#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ampkit/amp/autocast.h>
#include <ampkit/export.h>

namespace torch::autograd {
struct AutogradContext;
} // namespace torch::autograd

namespace ampkit {

/// Settings of a CustomForward.
struct CustomForwardOptions {
  /// A floating-point dtype: inside an autocast region, forward gets its inputs
  /// in it and runs with autocast off. Outside of one it does nothing. None:
  /// forward runs in the autocast state of its caller.
  std::optional<c10::ScalarType> cast_inputs;
};

/// The autocast state of the forward of a torch::autograd::Function, and its
/// memory for backward: torch.amp.custom_fwd as a scope. The first line of
/// forward.
///
///     struct Scale : torch::autograd::Function<Scale> {
///       static at::Tensor forward(
///           AutogradContext* ctx, at::Tensor x, at::Tensor weight) {
///         const ampkit::CustomForward scope(
///             ctx, at::kCPU, {.cast_inputs = at::kFloat});
///         x = scope.cast(x);
///         weight = scope.cast(weight);
///         ctx->save_for_backward({x, weight});
///         return my_kernel(x, weight);
///       }
///       static variable_list backward(
///           AutogradContext* ctx, variable_list grads) {
///         const ampkit::CustomBackward scope(ctx);
///         ...
///       }
///     };
///
/// Gradients may be returned in the dtype that backward computes in: autograd
/// casts them to those of the inputs. A scope on the stack; acts on the calling
/// thread only.
///
/// Source:
/// https://docs.pytorch.org/docs/stable/amp.html#autocast-and-custom-autograd-functions
class AMPKIT_API CustomForward {
 public:
  /// `ctx`: that of forward; its saved_data gets an entry "ampkit.autocast".
  /// `device`: whose autocast region counts, and whose tensors are cast: CPU or
  /// CUDA; its index is ignored.
  ///
  /// Throws c10::ValueError, changing nothing, for another device or if
  /// `cast_inputs` is not a floating-point dtype.
  CustomForward(
      torch::autograd::AutogradContext* ctx,
      c10::Device device,
      const CustomForwardOptions& options = {});

  CustomForward(const CustomForward&) = delete;
  CustomForward(CustomForward&&) = delete;
  CustomForward& operator=(const CustomForward&) = delete;
  CustomForward& operator=(CustomForward&&) = delete;

  /// `input` in `cast_inputs` if that is in effect and `input` is a
  /// floating-point tensor of the device type and not fp64; else `input`
  /// itself. Undefined tensors pass through.
  at::Tensor cast(const at::Tensor& input) const;
  std::optional<at::Tensor> cast(const std::optional<at::Tensor>& input) const;
  std::vector<at::Tensor> cast(const std::vector<at::Tensor>& inputs) const;

 private:
  c10::DeviceType device_;
  std::optional<c10::ScalarType> cast_to_; // none: cast() does nothing
  std::optional<Autocast> autocast_off_;
};

/// torch.amp.custom_bwd as a scope: until its end the calling thread, whichever
/// runs the backward pass, has the autocast state that forward had, for CPU and
/// CUDA. The first line of backward.
class AMPKIT_API CustomBackward {
 public:
  /// `ctx`: that of backward. Throws c10::Error, changing nothing, if forward
  /// made no CustomForward.
  explicit CustomBackward(const torch::autograd::AutogradContext* ctx);

 private:
  Autocast autocast_;
};

} // namespace ampkit
