#include <ampkit/dist/context.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "dist/context_impl.h"
#include "dist/rendezvous.h"

namespace ampkit::dist {

namespace {

bool says_yes(const char* variable, const std::string& yes) {
  const auto* value = std::getenv(variable);
  return value != nullptr && value == yes;
}

InitOptions with_environment(InitOptions options) {
  options.check_collectives = options.check_collectives ||
                              says_yes("AMPKIT_DIST_CHECK", "1") ||
                              says_yes("TORCH_DISTRIBUTED_DEBUG", "DETAIL");
  return options;
}

std::shared_ptr<PeerWatch> watch_peers(
    const Context::Impl& impl, const InitOptions& options) {
  c10::weak_intrusive_ptr<WatchedGroup> group(impl.gloo);
  // A connection of its own: a rank that waits in the store would block it.
  return std::make_shared<PeerWatch>(
      impl.store->clone(),
      impl.environment,
      impl.gloo->progress(),
      [group, also = options.on_lost_rank](const std::string& lost) {
        if (const auto alive = group.lock()) {
          alive->abort(); // what waits for the lost rank fails now
        }
        if (also) {
          also(lost);
        }
      });
}

} // namespace

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

// Says goodbye before the connections go.
Context::Impl::~Impl() {
  if (!watch) {
    return;
  }
  if (watch->lost_one()) {
    // Its threads may wait in Gloo until the time limit, and its end for them.
    // The process ends soon.
    gloo.release();
    group.release();
  }
  if (std::uncaught_exceptions() > exceptions) {
    watch->fail("");
  } else {
    watch->leave();
  }
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

void Context::abort(const std::string& why) const {
  if (impl_->watch) {
    impl_->watch->fail(why);
  }
  impl_->group->abort();
}

void Context::at_step(int64_t step) const {
  impl_->gloo->progress()->at_step(step);
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

Context init(
    const LaunchEnvironment& environment, const InitOptions& given_options) {
  given_options.check();
  auto options = with_environment(given_options);
  auto impl = std::make_shared<Context::Impl>();
  impl->environment = environment;
  if (options.with_python) {
    options.check_collectives = false;
    impl->store = open_python_store(environment, options);
    const auto connections = connect(impl->store, environment, options);
    impl->group = connections.group;
    impl->gloo = connections.gloo;
    return Context(std::move(impl));
  }
  impl->store = open_store(environment, options);
  options.check_collectives = check_in(*impl->store, environment, options);
  const auto sockets = open_sockets();
  const auto connections = connect(impl->store, environment, options);
  impl->group = connections.group;
  impl->gloo = connections.gloo;
  if (environment.world_size > 1) {
    impl->gloo->set_sockets(connected_since(sockets));
    impl->watch = watch_peers(*impl, options);
    impl->gloo->set_watch(impl->watch);
  }
  return Context(std::move(impl));
}

} // namespace ampkit::dist
