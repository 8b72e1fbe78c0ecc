#pragma once

#include <ampkit/dist/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/watched_group.h"

namespace ampkit::dist {

/// The store of all ranks, under a prefix of this start and this call.
c10::intrusive_ptr<c10d::Store> open_store(
    const LaunchEnvironment& environment, const InitOptions& options);

/// The store as torch.distributed.init_process_group() of Python prefixes it.
c10::intrusive_ptr<c10d::Store> open_python_store(
    const LaunchEnvironment& environment, const InitOptions& options);

/// Waits until all ranks are there. Returns whether collectives are checked,
/// which rank 0's options say for all.
bool check_in(
    c10d::Store& store,
    const LaunchEnvironment& environment,
    const InitOptions& options);

/// A rank's connections, twice: as LibTorch wants them, and as we do.
struct Connections {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  c10::intrusive_ptr<WatchedGroup> gloo;
};

/// Connects the ranks; returns when all of them are.
Connections connect(
    const c10::intrusive_ptr<c10d::Store>& store,
    const LaunchEnvironment& environment,
    const InitOptions& options);

} // namespace ampkit::dist
