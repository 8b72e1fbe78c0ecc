#pragma once

#include <cstdint>
#include <memory>

#include <ampkit/optim/schedule.h>
#include <ampkit/zoo/train/config.h>

namespace ampkit::zoo {

/// The schedule of `config` for a run of `total_steps`, in force at once.
std::unique_ptr<optim::LRScheduler> make_schedule(
    const RunConfig& config,
    torch::optim::Optimizer& optimizer,
    int64_t total_steps);

} // namespace ampkit::zoo
