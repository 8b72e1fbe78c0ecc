#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ampkit/io/state_dict.h>
#include <ampkit/io/torch_value.h>

namespace ampkit::optim {

/// The options of group `g` in a state of save_state(), without "group.<g>.",
/// in order: "lr", "betas.first", "betas.second", ...
std::vector<io::StateDict::Entry> options_of(
    const io::StateDict& flat, size_t g);

/// The same as a parameter group of torch.optim, without its parameters.
io::TorchDict to_torch_group(
    const std::vector<io::StateDict::Entry>& options,
    const std::string& optimizer);

/// The reverse.
struct TorchOptions {
  /// In the names and kinds of `wanted`.
  std::vector<io::StateDict::Entry> options;
  /// What is missing, unknown here or not supported.
  std::vector<std::string> problems;
};

/// `wanted`: the present options of the optimizer of the kind `optimizer`.
TorchOptions from_torch_group(
    const io::TorchDict& group,
    const std::vector<io::StateDict::Entry>& wanted,
    const std::string& optimizer);

/// The number that `value` is, or a tensor of one number holds; else throws
/// c10::Error.
double number_of(const io::TorchValue& value);

} // namespace ampkit::optim
