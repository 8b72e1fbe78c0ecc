#pragma once

#include <ATen/core/Generator.h>

namespace ampkit::io {

/// LibTorch's default CPU generator is one for all threads of the process. A
/// thread that stands for a rank has its own instead: this one, undefined in
/// any other thread. dist/ sees to it that ops use it.
const at::Generator& thread_generator();

/// Where CPU ops of this thread take their random numbers from by default:
/// thread_generator() if there is one, else LibTorch's default.
at::Generator cpu_generator();

/// Makes `generator` that of this thread while it lives.
class ThreadGeneratorGuard {
 public:
  explicit ThreadGeneratorGuard(at::Generator generator);
  ~ThreadGeneratorGuard();
  ThreadGeneratorGuard(const ThreadGeneratorGuard&) = delete;
  ThreadGeneratorGuard& operator=(const ThreadGeneratorGuard&) = delete;
  ThreadGeneratorGuard(ThreadGeneratorGuard&&) = delete;
  ThreadGeneratorGuard& operator=(ThreadGeneratorGuard&&) = delete;

 private:
  at::Generator before_;
};

} // namespace ampkit::io
