#pragma once

#include <ampkit/dist/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ampkit::dist {

/// The store of all ranks, under a prefix of this start and this call.
c10::intrusive_ptr<c10d::Store> open_store(
    const LaunchEnvironment& environment, const InitOptions& options);

/// Waits until all ranks are there.
void check_in(
    c10d::Store& store,
    const LaunchEnvironment& environment,
    const InitOptions& options);

/// Connects the ranks; returns when all of them are.
c10::intrusive_ptr<c10d::ProcessGroup> connect(
    const c10::intrusive_ptr<c10d::Store>& store,
    const LaunchEnvironment& environment,
    const InitOptions& options);

} // namespace ampkit::dist
