#pragma once

#include <exception>
#include <memory>

#include <ampkit/dist/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/peer_watch.h"
#include "dist/watched_group.h"

namespace ampkit::dist {

struct Context::Impl {
  ~Impl();

  LaunchEnvironment environment;
  // Before the group: it is needed until the group is gone.
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  c10::intrusive_ptr<WatchedGroup> gloo; // the same
  // Of ranks that are processes.
  std::shared_ptr<PeerWatch> watch;
  int exceptions = std::uncaught_exceptions(); // when it was made
  at::Generator generator; // undefined: the process' own
};

/// For what outlives a Context and must not keep it.
struct ContextAccess {
  static const std::shared_ptr<Context::Impl>& impl(const Context& context) {
    return context.impl_;
  }
};

} // namespace ampkit::dist
