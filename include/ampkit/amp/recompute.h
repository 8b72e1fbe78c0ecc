#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <ampkit/export.h>

namespace torch::nn {
class SequentialImpl;
} // namespace torch::nn

namespace ampkit {

/// Settings of checkpoint(); names and defaults of torch.utils.checkpoint.
struct RecomputeOptions {
  /// Whether random numbers are the same again: the states of the default
  /// generators of the CPU and of the CUDA devices in use are kept, put in
  /// force for the recomputation, and put back after it.
  bool preserve_rng_state = true;
  /// Whether the recomputation ends once it has what backward needs, by an
  /// exception through `fn` that is no std::exception.
  bool early_stop = true;
  /// Whether shapes, dtypes and devices of what is saved are compared. Their
  /// number always is.
  bool determinism_check = true;
  /// Ops whose results are kept and not computed again: the dear ones, as
  /// {"addmm", "mm", "convolution"} (what torch::linear and conv2d are made
  /// of), "_scaled_dot_product_flash_attention_for_cpu", "mylib::scan"; a name
  /// without overload stands for all. Such an op may not give a view, and its
  /// results must not be changed in place. Of nested checkpoints, the innermost
  /// says what is kept. As torch.utils.checkpoint's
  /// create_selective_checkpoint_contexts with MUST_SAVE.
  std::vector<std::string> save_results_of = {};
};

namespace recompute_detail {

class Frame;

/// While it lives, tensors that autograd saves on the calling thread are let
/// go; `rerun` with the same inputs makes them again in backward.
class AMPKIT_API Scope {
 public:
  using Rerun = std::function<void(const std::vector<at::Tensor>& inputs)>;

  Scope(
      const RecomputeOptions& options,
      const std::vector<at::Tensor>& inputs,
      Rerun rerun);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope(Scope&&) = delete;
  Scope& operator=(const Scope&) = delete;
  Scope& operator=(Scope&&) = delete;

 private:
  struct Active;
  std::unique_ptr<Active> active_; // null without grad mode
};

/// Moves the tensors of an argument to `tensors`, which the graph keeps.
template <typename T>
void take(T& /*argument*/, std::vector<at::Tensor>& /*tensors*/) {}
inline void take(at::Tensor& argument, std::vector<at::Tensor>& tensors) {
  tensors.push_back(std::exchange(argument, at::Tensor()));
}
inline void take(
    std::optional<at::Tensor>& argument, std::vector<at::Tensor>& tensors) {
  if (argument.has_value()) {
    take(*argument, tensors);
  }
}
inline void take(
    std::vector<at::Tensor>& argument, std::vector<at::Tensor>& tensors) {
  for (at::Tensor& tensor : argument) {
    take(tensor, tensors);
  }
}

/// The reverse of take(): fills in from `next` on.
using Next = std::vector<at::Tensor>::const_iterator;
template <typename T>
void put(T& /*argument*/, Next& /*next*/) {}
inline void put(at::Tensor& argument, Next& next) {
  argument = *next++;
}
inline void put(std::optional<at::Tensor>& argument, Next& next) {
  if (argument.has_value()) {
    put(*argument, next);
  }
}
inline void put(std::vector<at::Tensor>& argument, Next& next) {
  for (at::Tensor& tensor : argument) {
    put(tensor, next);
  }
}

template <typename T>
constexpr bool kIsArrayRef = false;
template <typename T>
constexpr bool kIsArrayRef<c10::ArrayRef<T>> = true;

} // namespace recompute_detail

/// fn(inputs...), of which backward keeps only the inputs: what the ops inside
/// would have saved is computed again when backward needs it. Less memory for
/// about one more forward pass.
///
///     for (auto& block : blocks) {
///       x = ampkit::checkpoint(block, x);   // any module that has forward()
///     }
///     auto [y, count] = ampkit::checkpoint(
///         {.preserve_rng_state = false},
///         [=](torch::Tensor x, int64_t n) { return std::pair(f(x, n), n); },
///         x, 3);
///
/// Gradients are those of the plain call, bit for bit: the graph is the same,
/// only the values in it come later, so parameters and tensors that `fn`
/// captures, layers used several times, several or non-tensor results, inputs
/// without gradients, retain_graph, create_graph and torch::autograd::grad all
/// work. The recomputation runs in the autocast state of the call (dtype, op
/// and module policies, Fp8Linears) with its random numbers, wherever
/// backward() is called. PrecisionController and Fp8Linears count it as nothing
/// new. Nests: an inner checkpoint gives up even its inputs.
///
/// `fn` is called with copies of `inputs`, again for each backward pass, and
/// must do the same each time; what else it changes (batch norm's running
/// averages, counters) it changes again, up to where it is stopped early.
/// Change neither inputs nor parameters in place between call and backward.
/// Tensors among the inputs, also in an std::optional or std::vector, are kept
/// as the graph keeps them; others and all captures as `fn` holds them. Only
/// what the calling thread saves is recomputed. In no-grad mode this is
/// fn(inputs...).
///
/// Throws c10::ValueError if `save_results_of` names an op that can't be kept.
/// backward() throws c10::Error if the recomputation saves a different number
/// of tensors, or others by shape, dtype or device, if a parameter has changed,
/// and what `fn` throws. Two graphs that share nothing may run at once.
///
/// Source: torch.utils.checkpoint with use_reentrant=False;
/// docs/recompute.md says how it is done without Python.
template <typename F, typename... Inputs>
auto checkpoint(const RecomputeOptions& options, F&& fn, Inputs&&... inputs) {
  static_assert(
      !(recompute_detail::kIsArrayRef<std::decay_t<Inputs>> || ...),
      "checkpoint: an ArrayRef doesn't own its elements; pass a std::vector");
  const auto function = std::make_shared<std::decay_t<F>>(std::forward<F>(fn));
  std::tuple<std::decay_t<Inputs>...> arguments(
      std::forward<Inputs>(inputs)...);
  auto rest = arguments;
  std::vector<at::Tensor> tensors;
  std::apply(
      [&](auto&... argument) {
        (recompute_detail::take(argument, tensors), ...);
      },
      rest);
  const recompute_detail::Scope scope(
      options,
      tensors,
      [function, rest = std::move(rest)](const std::vector<at::Tensor>& again) {
        auto copies = rest;
        [[maybe_unused]] auto next = again.begin();
        std::apply(
            [&](auto&... argument) {
              (recompute_detail::put(argument, next), ...);
            },
            copies);
        static_cast<void>(std::apply(*function, std::move(copies)));
      });
  tensors.clear(); // not to be held while fn runs
  return std::apply(*function, std::move(arguments));
}

/// With the default options.
template <typename F, typename... Inputs>
  requires(!std::is_same_v<std::decay_t<F>, RecomputeOptions>)
auto checkpoint(F&& fn, Inputs&&... inputs) {
  return checkpoint(
      RecomputeOptions(), std::forward<F>(fn), std::forward<Inputs>(inputs)...);
}

/// Runs `functions` one after another, in `segments` groups of equal length,
/// the last taking the rest: each but the last is a checkpoint(), as in
/// torch.utils.checkpoint.checkpoint_sequential.
///
///     auto y = ampkit::checkpoint_sequential(*sequential, 4, x);
///
/// Throws c10::ValueError if `segments` is not in [1, number of functions].
AMPKIT_API at::Tensor checkpoint_sequential(
    const std::vector<std::function<at::Tensor(at::Tensor)>>& functions,
    int64_t segments,
    const at::Tensor& input,
    const RecomputeOptions& options = {});

/// Of the modules in a torch::nn::Sequential, each a tensor to a tensor.
AMPKIT_API at::Tensor checkpoint_sequential(
    torch::nn::SequentialImpl& functions,
    int64_t segments,
    const at::Tensor& input,
    const RecomputeOptions& options = {});

} // namespace ampkit
