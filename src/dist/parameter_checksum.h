#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ampkit/dist/context.h>

namespace ampkit::dist {

/// Throws c10::Error on every rank, with the first tensor in which a rank
/// differs from rank 0 in any bit. All ranks must call it, with equally many
/// tensors.
void check_same_on_all_ranks(
    const Context& context,
    const std::vector<at::Tensor>& tensors,
    const std::vector<std::string>& names);

} // namespace ampkit::dist
