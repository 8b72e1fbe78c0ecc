#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fp8.h>

#include "amp/fp8_delayed_scales.h"
#include "amp/fp8_tensor.h"
#include "amp/linear_override.h"

namespace ampkit {

/// A weight, in FP8 or not, and the FP8 copies of it.
struct Fp8Weight {
  at::Tensor parameter;
  std::string name;
  std::string excluded; // why; empty: in FP8
  int64_t column = -1; // place among the delayed scales
  int64_t products = 0;

  /// The FP8 values of one state of the parameter, in the orientation in which
  /// it is multiplied: [in, out].
  struct Copy {
    bool transposed = false; // of the parameter
    uint32_t version = 0;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Fp8Tensor forward;
    Fp8Tensor backward; // made when first needed
    at::Tensor amax; // of `delayed`
    bool recorded = false;
  };
  std::vector<Copy> copies; // at most one an orientation
};

/// What an Fp8Linears holds; the autograd graph keeps it alive.
class Fp8State final : public LinearOverride,
                       public std::enable_shared_from_this<Fp8State> {
 public:
  using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

  Fp8State(const NamedParameters& parameters, const Fp8Options& options);

  at::Tensor product(
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      at::ScalarType dtype) override;

  /// One scale for all of `values` [rows, columns], or in `row_wise` one for
  /// each slice along `dim`. `record`: `delayed` takes note of the amax.
  Fp8Tensor quantize(
      const at::Tensor& values,
      const Fp8Weight& weight,
      Fp8Role role,
      int64_t dim,
      bool record);

  /// The FP8 copies of `values`, which is that weight's parameter or its
  /// transpose, for the output and, if asked for, the gradient of the input.
  std::pair<Fp8Tensor, Fp8Tensor> quantize_weight(
      Fp8Weight& weight,
      const at::Tensor& values,
      bool record,
      bool for_backward);

  at::Tensor matmul(
      const Fp8Tensor& a,
      const Fp8Tensor& b,
      at::ScalarType dtype,
      bool fast) const;

  void update();
  io::StateDict state_dict() const;
  void load_state_dict(const io::StateDict& state);

  bool row_wise() const { return options_.recipe == Fp8Recipe::row_wise; }
  const Fp8Options& options() const { return options_; }
  const std::vector<Fp8Weight>& weights() const { return weights_; }

 private:
  Fp8Weight* find(const at::Tensor& weight);
  Fp8Weight::Copy& copy_of(Fp8Weight& weight, const at::Tensor& values);
  std::string misfits(const io::StateDict& state) const;

  Fp8Options options_;
  bool power_of_two_;
  at::ScalarType gradient_dtype_;
  std::vector<Fp8Weight> weights_;
  std::unordered_map<const c10::TensorImpl*, size_t> places_;
  std::optional<Fp8DelayedScales> delayed_;
  std::mutex copies_mutex_;
};

/// The hook by which an autocast region runs products in FP8.
AMPKIT_API std::shared_ptr<LinearOverride> linear_override(
    const Fp8Linears& linears);

} // namespace ampkit
