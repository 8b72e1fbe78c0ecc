#include "io/thread_generator.h"

#include <utility>

#include <ATen/Context.h>

namespace ampkit::io {
namespace {

at::Generator& generator_of_this_thread() {
  thread_local at::Generator generator;
  return generator;
}

} // namespace

const at::Generator& thread_generator() {
  return generator_of_this_thread();
}

at::Generator cpu_generator() {
  const auto& own = thread_generator();
  return own.defined() ? own : at::globalContext().defaultGenerator(at::kCPU);
}

ThreadGeneratorGuard::ThreadGeneratorGuard(at::Generator generator)
    : before_(std::exchange(generator_of_this_thread(), std::move(generator))) {
}

ThreadGeneratorGuard::~ThreadGeneratorGuard() {
  generator_of_this_thread() = std::move(before_);
}

} // namespace ampkit::io
