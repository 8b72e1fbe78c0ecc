#pragma once

#include <memory>
#include <utility>

#include <torch/nn/module.h>

#include <ampkit/export.h>

namespace ampkit::io {

/// Gives `target` the values, dtypes, devices and memory layouts of the
/// parameters and buffers of `source`, their requires_grad, and the training
/// mode of each submodule. Nothing is shared afterwards; gradients are not
/// copied.
///
/// Throws c10::Error, having changed nothing, with all names that only one of
/// them has, all shapes that differ, and all parameters that are tied (one
/// tensor under two names) in one and not in the other.
AMPKIT_API void mirror_module(
    const torch::nn::Module& source, torch::nn::Module& target);

/// A copy of `module` that shares nothing with it and has the same ties, flags
/// and modes. Module::clone() cuts ties between submodules, since it clones
/// each alone, and makes every parameter trainable. `make` gives a new module
/// built like the first, ties included; its values don't matter:
///
///     auto copy = io::clone_module(
///         *net, [&] { return std::make_shared<NetImpl>(options); });
///
/// Errors: those of mirror_module().
template <class Module, class Make>
std::shared_ptr<Module> clone_module(const Module& module, const Make& make) {
  std::shared_ptr<Module> copy = make();
  mirror_module(module, *copy);
  return copy;
}

/// The same with Module::clone(), for modules without ties or whose own
/// parameters are tied in reset(). Throws instead of losing a tie.
template <class Module>
std::shared_ptr<Module> clone_module(const Module& module) {
  return clone_module(module, [&] {
    return std::dynamic_pointer_cast<Module>(module.clone());
  });
}

} // namespace ampkit::io
