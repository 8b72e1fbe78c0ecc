#include <ampkit/dist/context.h>

#include <mutex>
#include <utility>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "dist/context_impl.h"
#include "dist/rendezvous.h"

namespace ampkit::dist {

void InitOptions::check() const {
  TORCH_CHECK_VALUE(
      timeout.count() > 0,
      "dist::init: timeout must be > 0, got ",
      timeout.count(),
      " ms");
  TORCH_CHECK_VALUE(
      start_timeout.count() > 0,
      "dist::init: start_timeout must be > 0, got ",
      start_timeout.count(),
      " ms");
}

Context::Context(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

int Context::rank() const {
  return impl_->environment.rank;
}

int Context::world_size() const {
  return impl_->environment.world_size;
}

int Context::local_rank() const {
  return impl_->environment.local_rank;
}

const LaunchEnvironment& Context::environment() const {
  return impl_->environment;
}

const c10::intrusive_ptr<c10d::ProcessGroup>& Context::process_group() const {
  return impl_->group;
}

const c10::intrusive_ptr<c10d::Store>& Context::store() const {
  return impl_->store;
}

void Context::barrier() const {
  impl_->group->barrier()->wait();
}

void Context::abort() const {
  impl_->group->abort();
}

at::Generator Context::generator() const {
  return impl_->generator.defined()
             ? impl_->generator
             : at::globalContext().defaultGenerator(at::kCPU);
}

void Context::manual_seed(uint64_t seed) const {
  if (!impl_->generator.defined()) {
    at::manual_seed(seed);
    return;
  }
  auto generator = impl_->generator;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

Context init(const InitOptions& options) {
  return init(read_launch_environment(), options);
}

Context init(const LaunchEnvironment& environment, const InitOptions& options) {
  options.check();
  auto impl = std::make_shared<Context::Impl>();
  impl->environment = environment;
  impl->store = open_store(environment, options);
  check_in(*impl->store, environment, options);
  impl->group = connect(impl->store, environment, options);
  return Context(std::move(impl));
}

} // namespace ampkit::dist
