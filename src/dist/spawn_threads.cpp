#include <ampkit/dist/spawn_threads.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "dist/context_impl.h"
#include "dist/rendezvous.h"
#include "dist/thread_random.h"

namespace ampkit::dist {
namespace {

std::string current_error() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

/// The ranks of one call of spawn_threads().
class ThreadRanks {
 public:
  ThreadRanks(int ranks, const SpawnOptions& options)
      : options_(options), contexts_(static_cast<size_t>(ranks)) {}

  template <class Body>
  void run(int rank, const Body& body) {
    try {
      at::set_num_threads(options_.threads_per_rank);
      const auto context = join(rank);
      const ThreadRandom random(context.generator());
      body(context);
      // Nobody leaves while another may need it.
      context.barrier();
    } catch (...) {
      fail(rank, current_error());
    }
  }

  /// Throws if a rank has.
  void check() const {
    TORCH_CHECK(
        first_failure_ < 0,
        "dist::spawn_threads: rank ",
        first_failure_,
        " of ",
        contexts_.size(),
        " failed: ",
        message_);
  }

 private:
  Context join(int rank) {
    const auto size = static_cast<int>(contexts_.size());
    auto impl = std::make_shared<Context::Impl>();
    impl->environment = {
        .launcher = Launcher::threads,
        .rank = rank,
        .world_size = size,
        .local_rank = rank,
        .local_world_size = size};
    impl->store = store_;
    impl->generator = at::detail::createCPUGenerator(0);
    const auto connections = connect(
        impl->store,
        impl->environment,
        {.timeout = options_.timeout,
         .check_collectives = options_.check_collectives});
    impl->group = connections.group;
    impl->gloo = connections.gloo;
    Context context(std::move(impl));
    const std::lock_guard<std::mutex> lock(mutex_);
    contexts_[static_cast<size_t>(rank)].push_back(context);
    return context;
  }

  void fail(int rank, const std::string& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_failure_ < 0) {
      first_failure_ = rank;
      message_ = message;
    }
    for (const auto& context : contexts_[static_cast<size_t>(rank)]) {
      context.abort();
    }
  }

  SpawnOptions options_;
  c10::intrusive_ptr<c10d::Store> store_ =
      c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex_;
  // Of each rank, none until it is connected. Kept until all have ended.
  std::vector<std::vector<Context>> contexts_;
  int first_failure_ = -1;
  std::string message_;
};

SpawnOptions resolved_spawn(int ranks, SpawnOptions options) {
  TORCH_CHECK_VALUE(
      ranks >= 1, "dist::spawn_threads: ranks must be >= 1, got ", ranks);
  TORCH_CHECK_VALUE(
      options.timeout.count() > 0,
      "dist::spawn_threads: timeout must be > 0, got ",
      options.timeout.count(),
      " ms");
  TORCH_CHECK_VALUE(
      options.threads_per_rank >= 0,
      "dist::spawn_threads: threads_per_rank must be >= 0, got ",
      options.threads_per_rank);
  if (options.threads_per_rank == 0) {
    options.threads_per_rank = std::max(1, at::get_num_threads() / ranks);
  }
  return options;
}

} // namespace

void spawn_threads(
    int ranks,
    const std::function<void(const Context&)>& body,
    const SpawnOptions& options) {
  const auto threads_before = at::get_num_threads();
  ThreadRanks all(ranks, resolved_spawn(ranks, options));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&all, &body, rank] { all.run(rank, body); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  // MKL's number is that of the process.
  at::set_num_threads(threads_before);
  all.check();
}

} // namespace ampkit::dist
