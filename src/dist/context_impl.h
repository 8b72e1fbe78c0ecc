#pragma once

#include <ampkit/dist/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ampkit::dist {

struct Context::Impl {
  LaunchEnvironment environment;
  // Before the group: it is needed until the group is gone.
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  at::Generator generator; // undefined: the process' own
};

} // namespace ampkit::dist
