#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace ampkit::dist {

/// What values are divided by before their sum over `world_size` ranks is taken
/// in 16 bits: the smallest power of two that is not below its root, so that
/// it rounds nothing.
double divisor_before_sum(int world_size);

/// The mean over the ranks, sent and summed in `dtype`.
std::unique_ptr<c10d::CommHookInterface> make_reduce_hook(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10::ScalarType dtype);

} // namespace ampkit::dist
