#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit {

class Fp8State;
class LinearOverride;

/// Where the factor comes from that moves values into the range of FP8.
enum class Fp8Recipe {
  /// From the largest magnitude (amax) of the tensor itself. torchao's
  /// "tensorwise", TransformerEngine's Float8CurrentScaling.
  current,
  /// From the amax of earlier steps. TransformerEngine's DelayedScaling.
  delayed,
  /// As `current`, for each row of one operand and column of the other.
  /// torchao's "rowwise".
  row_wise,
};

/// Which FP8 dtypes; TransformerEngine's Format.
enum class Fp8Format {
  hybrid, ///< E4M3 forward, E5M2 for gradients
  e4m3, ///< E4M3 everywhere
};

/// Which amax of the history counts in `delayed`; TransformerEngine's names.
enum class Fp8AmaxAlgorithm {
  max, ///< the largest
  most_recent, ///< that of the last step
};

/// Settings of an Fp8Linears. Names and defaults are TransformerEngine's and
/// torchao's; docs/fp8.md says where each stands.
struct Fp8Options {
  Fp8Recipe recipe = Fp8Recipe::current;
  /// None: hybrid; e4m3 in `row_wise`, as torchao does.
  std::optional<Fp8Format> fp8_format;
  /// Scales are rounded down to powers of two. None: only in `row_wise`, as
  /// torchao does. Not with `delayed`.
  std::optional<bool> round_scales_to_power_of_2;
  /// Steps that `delayed` looks back; >= 1.
  int64_t amax_history_len = 1024;
  Fp8AmaxAlgorithm amax_compute_algo = Fp8AmaxAlgorithm::max;
  /// `delayed` leaves room for values 2^margin times the amax.
  int64_t margin = 0;
  /// Called by update() in `delayed` with the amaxes of the step, fp32
  /// [3 * layers], to be replaced by their maximum over all ranks.
  std::function<void(at::Tensor& amaxes)> reduce_amax;
  /// A layer stays in the region's dtype if the name of its weight contains
  /// one of these, as in torchao: {"head"} for "head.weight".
  std::vector<std::string> filter_fqns;
};

/// One weight of an Fp8Linears.
struct Fp8Layer {
  std::string name;
  std::vector<int64_t> shape;
  /// Why products with it run in the region's dtype; empty: they run in FP8.
  std::string excluded;
  int64_t products = 0; ///< in FP8 so far
};

/// The factor that moves `amax` to the largest value of `dtype`
/// (Float8_e4m3fn 448, Float8_e5m2 57344): max(dtype) / max(amax, 1e-12), in
/// FP64, rounded to FP32; then rounded down to a power of two if asked for; 1
/// where `amax` is inf or NaN. `amax`: any shape, >= 0. Does not wait for the
/// device.
AMPKIT_API at::Tensor fp8_scale(
    const at::Tensor& amax,
    at::ScalarType dtype,
    bool round_to_power_of_2 = false);

/// `tensor` * `scale` in FP32, rounded to the nearest (ties to even) value of
/// `dtype`, Float8_e4m3fn or Float8_e5m2. What is finite beyond the range
/// becomes the largest finite value of its sign; NaN stays NaN; inf stays inf
/// in E5M2 and becomes NaN in E4M3, which has no inf; -0.0 stays -0.0. The same
/// on every version of LibTorch, whose own cast turned overflow into NaN up to
/// 2.11 and turns inf into 448 since.
///
/// `tensor`: any shape, floating point. `scale`: fp32, > 0, broadcast. Throws
/// c10::ValueError for any other dtype.
AMPKIT_API at::Tensor fp8_quantize(
    const at::Tensor& tensor, at::ScalarType dtype, const at::Tensor& scale);

/// Whether FP8 products with those options run on units made for them
/// (at::_scaled_mm) with results in `dtype`: CUDA devices of capability 8.9 and
/// up, found by trying once. Elsewhere they are emulated: operands are
/// dequantised to FP32, multiplied and summed in FP32, and rounded once to
/// `dtype`, which is bit for bit what PyTorch's _scaled_mm does on the CPU.
AMPKIT_API bool has_fp8_matmul(
    c10::Device device,
    const Fp8Options& options = {},
    at::ScalarType dtype = at::ScalarType::BFloat16);

/// Runs products with the weights of linear layers in FP8: all three of a
/// training step, output, gradient of the input and gradient of the weight.
///
///     auto fp8 = std::make_shared<ampkit::Fp8Linears>(
///         *model, ampkit::Fp8Options{.filter_fqns = {"head"}});
///     ...
///     scaler.step(optimizer);
///     scaler.update();
///     fp8->update();   // once an optimizer step, after backward()
///
/// Weights stay in FP32; biases are added in the 16-bit dtype, and their
/// gradient is a FP32 sum. What is kept for backward is the FP8 tensors. A
/// weight is quantised once, and again when it changes in place.
///
/// An inf or NaN in an input or gradient is never saturated: it reaches the
/// weight gradients, where a GradScaler sees it.
///
/// Recomputing a forward pass before update() gives the same bits and counts
/// nothing twice: a scale changes in update() only, amaxes are recorded by
/// maximum, and without grad mode not at all, so that an evaluation leaves no
/// trace.
///
/// Not thread-safe, except that backward() may run on other threads. Never
/// waits for the device but in state_dict() and load_state_dict().
class AMPKIT_API Fp8Linears {
 public:
  /// For the two-dimensional parameters of `module`, under its names. Each
  /// product input @ weight or input @ weight.t() with one of them is taken,
  /// if both dimensions are multiples of 16, as _scaled_mm needs. Keeps the
  /// parameters alive. Throws c10::ValueError, naming the field, if an option
  /// is out of range.
  explicit Fp8Linears(
      const torch::nn::Module& module, const Fp8Options& options = {});

  /// For parameters named "0", "1", ...
  explicit Fp8Linears(
      const std::vector<at::Tensor>& parameters,
      const Fp8Options& options = {});

  ~Fp8Linears();
  Fp8Linears(const Fp8Linears&) = delete;
  Fp8Linears(Fp8Linears&&) = delete;
  Fp8Linears& operator=(const Fp8Linears&) = delete;
  Fp8Linears& operator=(Fp8Linears&&) = delete;

  /// `input` [..., in] @ `weight` [out, in] transposed + `bias` [out] in
  /// `dtype`, BFloat16 or Half, with autograd but no second derivative; for
  /// code outside an autocast region. Throws c10::Error if this product can't
  /// be taken.
  at::Tensor linear(
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias = std::nullopt,
      at::ScalarType dtype = at::ScalarType::BFloat16);

  /// Ends the step: `delayed` takes over the amaxes and computes new scales.
  /// The amax of a tensor that held inf or NaN is left out (TransformerEngine
  /// keeps it, which holds the scale for amax_history_len steps). FP8 copies of
  /// weights are dropped with the scales that they were made with.
  void update();

  /// All two-dimensional parameters, in FP8 or not, and why not.
  std::vector<Fp8Layer> layers() const;

  const Fp8Options& options() const;

  /// The recipe and, in `delayed`, for each layer "<name>.amax_history" [len,
  /// 3], "<name>.scale" [3] and "<name>.scale_inv" [3], columns: input, weight,
  /// gradient. A run that takes it back continues bit for bit.
  io::StateDict state_dict() const;

  /// Throws c10::Error, having changed nothing, with all that does not fit by
  /// name, shape or dtype, and if a scale and its inverse are not of a pair.
  void load_state_dict(const io::StateDict& state);

 private:
  friend AMPKIT_API std::shared_ptr<LinearOverride> linear_override(
      const Fp8Linears& linears);

  std::shared_ptr<Fp8State> state_;
};

} // namespace ampkit
