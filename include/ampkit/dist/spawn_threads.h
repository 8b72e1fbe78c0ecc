#pragma once

#include <chrono>
#include <functional>

#include <ampkit/dist/context.h>
#include <ampkit/export.h>

namespace ampkit::dist {

/// Settings of spawn_threads().
struct SpawnOptions {
  /// How long a collective may wait for the other ranks; > 0.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Threads that each rank's ops use; 0: an equal share of at::
  /// get_num_threads(), at least one; otherwise > 0.
  int threads_per_rank = 0;
  /// As InitOptions::check_collectives.
  bool check_collectives = false;
};

/// Runs `body` on `ranks` threads of this process, each of which is one rank,
/// and returns when all of them have ended. The body of a process that
/// `ampkit run` starts and this one's differ in nothing but where the context
/// comes from:
///
///     using ampkit::dist::Context;
///     ampkit::dist::spawn_threads(2, [](const Context& context) {
///       context.manual_seed(1);
///       ...
///     });
///
/// Each rank has its own process group, random numbers, autocast state and
/// gradient mode, and begins with LibTorch's defaults; random numbers are
/// seeded with 0. So that ranks do not disturb each other, the body must not
/// share modules or tensors that it changes, and must seed by
/// Context::manual_seed(). Random numbers drawn on threads that the body starts
/// itself come from LibTorch's shared generator.
///
/// If a rank throws, its connections are closed, so that the others' next
/// collectives throw too, and when all have ended spawn_threads() throws
/// c10::Error with the number and message of the rank that was first. Throws
/// c10::ValueError if `ranks` < 1 or an option is out of range.
AMPKIT_API void spawn_threads(
    int ranks,
    const std::function<void(const Context& context)>& body,
    const SpawnOptions& options = {});

} // namespace ampkit::dist
