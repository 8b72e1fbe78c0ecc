#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "io/thread_generator.h"

namespace ampkit::dist {

/// While it lives, ops of this thread on CPU tensors take their random numbers
/// from `generator` unless they are given another.
class ThreadRandom {
 public:
  explicit ThreadRandom(const at::Generator& generator);

 private:
  io::ThreadGeneratorGuard guard_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

} // namespace ampkit::dist
