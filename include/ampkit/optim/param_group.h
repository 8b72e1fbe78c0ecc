#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::optim {

/// Which code updates the parameters of a group.
enum class Kernel {
  /// `highway` on the CPU for fp32, fp16 and bf16 parameters, else `stock`.
  automatic,
  /// LibTorch's fused ops; any device. In fp32 bit-equal to Python's
  /// torch.optim with fused=True.
  stock,
  /// ampkit's own, one pass over memory, for the instruction set that the
  /// processor has. Only the CPU, only fp32, fp16 and bf16: anything else
  /// throws at the step.
  highway,
};

/// Parameters with the names by which messages and state dicts know them.
struct NamedParameters {
  std::vector<at::Tensor> params;
  std::vector<std::string> names;
};

/// The parameters of `module` under the names of named_parameters().
AMPKIT_API NamedParameters named(const torch::nn::Module& module);

/// Parameters that share options.
///
///     AdamW optimizer({
///         ParamGroup{weights, AdamWOptions{.lr = 3e-4}},
///         ParamGroup{biases, AdamWOptions{.lr = 3e-4, .weight_decay = 0}}});
template <class Options>
struct ParamGroup {
  std::vector<at::Tensor> params;
  Options options = {};
  /// Shown in messages; may be empty.
  std::string name = {};
  /// One for each parameter, unique in the optimizer; or empty, which makes
  /// them "0", "1", ..., counted over all groups.
  std::vector<std::string> names = {};
};

} // namespace ampkit::optim
