#pragma once

#include <ampkit/export.h>
#include <ampkit/io/name_map.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::io {

/// Settings of load_module_state().
struct LoadModuleStateOptions {
  /// Every entry of the module must be in the state, and the other way round.
  bool strict = true;
  /// Convert between floating-point dtypes instead of refusing them.
  bool convert_dtype = false;
  /// From the names of the state to those of the module; none: the same.
  ///
  ///     {.rename = replace_prefixes({{"module.", ""}})}
  NameMap rename = {};
};

/// The parameters and buffers of `module` under the names, and in the order,
/// of Python's `nn.Module.state_dict()`: "layers.0.weight". The tensors share
/// the module's memory and require no gradient; to freeze values, clone.
///
/// Undefined parameters and buffers (bias = false) are left out. C++ modules do
/// not know non-persistent buffers: all are in.
AMPKIT_API StateDict module_state(const torch::nn::Module& module);

/// Copies the tensors of `state` into the parameters and buffers of `module`,
/// from any device and any memory layout into any other. Storages stay:
/// optimizers, masters, flat buffers and views see the new values, ties stay
/// ties, and autograd records nothing.
///
/// Throws c10::Error, having changed nothing, with the list of all entries that
/// are missing or unexpected (unless strict is false) or that differ in shape
/// or dtype (always). Where a prefix of all names is the difference, it says
/// so. Of a parameter with several names (tied), one name in the
/// state is enough; if it has more, their values must agree.
AMPKIT_API void load_module_state(
    torch::nn::Module& module,
    const StateDict& state,
    const LoadModuleStateOptions& options = {});

} // namespace ampkit::io
