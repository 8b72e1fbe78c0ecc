#pragma once

#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::io {

/// The parameters and buffers of `module` in the order of module_state(). The
/// tensors themselves, not detached: a tied parameter is the same object.
StateDict module_members(const torch::nn::Module& module);

} // namespace ampkit::io
