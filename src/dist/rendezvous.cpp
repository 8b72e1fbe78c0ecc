#include "dist/rendezvous.h"

#include <map>
#include <mutex>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "dist/broken_pipes.h"
#include "dist/gloo_group.h"
#include "dist/loopback.h"

namespace ampkit::dist {
namespace {

using std::chrono::milliseconds;

std::string seconds(milliseconds time) {
  return c10::str(static_cast<double>(time.count()) / 1000, " s");
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string who(const LaunchEnvironment& environment) {
  return c10::str(
      "dist::init: rank ",
      environment.rank,
      " of ",
      environment.world_size,
      " (",
      to_string(environment.launcher),
      ")");
}

c10::intrusive_ptr<c10d::Store> open_tcp_store(
    const LaunchEnvironment& environment, const InitOptions& init_options) {
  const bool serves =
      environment.rank == 0 && !environment.launcher_keeps_store;
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.isServer = serves;
  // check_in() says who is missing. Python's store counts who came.
  options.waitWorkers =
      init_options.with_python && !environment.launcher_keeps_store;
  if (options.waitWorkers) {
    options.numWorkers = static_cast<size_t>(environment.world_size);
  }
  options.timeout = init_options.start_timeout;
  survive_broken_pipes();
  // LibTorch's own socket would listen on every interface.
  if (serves && is_ipv4_loopback(environment.master_addr)) {
    options.masterListenFd =
        listen_on_loopback(environment.master_addr, environment.master_port)
            .release();
  }
  return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
}

// The same for all ranks of a job, which call init() equally often. Counted by
// rank and port, since a process may hold several ranks, or be in several jobs.
std::string next_prefix(const LaunchEnvironment& environment) {
  static std::mutex mutex;
  static std::map<std::pair<int, uint16_t>, int> calls;
  const std::lock_guard<std::mutex> lock(mutex);
  return c10::str(
      "ampkit/start_",
      environment.restart_count,
      "/init_",
      calls[{environment.rank, environment.master_port}]++);
}

std::string seat(int rank) {
  return c10::str("seat_", rank);
}

// "1, 3 and 12 more"
std::string missing_ranks(c10d::Store& store, int world_size) {
  constexpr int kNamed = 16;
  std::string names;
  int count = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!store.check({seat(rank)}) && count++ < kNamed) {
      names += (names.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return count > kNamed ? c10::str(names, " and ", count - kNamed, " more")
                        : names;
}

void take_seat(c10d::Store& store, const LaunchEnvironment& environment) {
  const auto size = std::to_string(environment.world_size);
  const auto agreed = text(store.compareSet("world_size", {}, bytes(size)));
  if (agreed != size) {
    C10_THROW_ERROR(
        DistStoreError,
        c10::str(
            who(environment),
            ": another rank was told of a world of ",
            agreed));
  }
  if (store.add(seat(environment.rank), 1) > 1) {
    C10_THROW_ERROR(
        DistStoreError,
        c10::str(
            who(environment),
            ": another process says that it is this rank; give each its own"));
  }
}

std::string heard(int rank) {
  return c10::str("heard_", rank);
}

// Rank 0 looks who came, so that the store is not asked by all for all.
std::string call_the_roll(
    c10d::Store& store, int world_size, milliseconds timeout) {
  std::vector<std::string> seats;
  for (int rank = 0; rank < world_size; ++rank) {
    seats.push_back(seat(rank));
  }
  try {
    store.wait(seats, timeout);
    return "";
  } catch (const c10::Error&) {
    return missing_ranks(store, world_size);
  }
}

// The store goes with rank 0, which those who came must not see first.
void let_others_hear(c10d::Store& store, int world_size) {
  for (int rank = 1; rank < world_size; ++rank) {
    if (store.check({seat(rank)})) {
      try {
        store.wait({heard(rank)}, std::chrono::seconds(2));
      } catch (const c10::Error&) {
        return; // gone itself
      }
    }
  }
}

c10::intrusive_ptr<c10d::Store> open_prefixed(
    const std::string& prefix,
    const LaunchEnvironment& environment,
    const InitOptions& options) {
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        prefix, open_tcp_store(environment, options));
  } catch (const c10::DistError& error) {
    C10_THROW_ERROR(
        DistStoreError,
        c10::str(
            who(environment),
            ": no store at ",
            environment.master_addr,
            ":",
            environment.master_port,
            " within ",
            seconds(options.start_timeout),
            "; is rank 0 running, and are MASTER_ADDR and MASTER_PORT the same "
            "for all? ",
            error.what_without_backtrace()));
  }
}

} // namespace

c10::intrusive_ptr<c10d::Store> open_store(
    const LaunchEnvironment& environment, const InitOptions& options) {
  if (environment.launcher == Launcher::none) {
    return c10::make_intrusive<c10d::HashStore>();
  }
  return open_prefixed(next_prefix(environment), environment, options);
}

c10::intrusive_ptr<c10d::Store> open_python_store(
    const LaunchEnvironment& environment, const InitOptions& options) {
  // Source: torch/distributed/distributed_c10d.py of 2.13,
  // init_process_group().
  return open_prefixed("default_pg", environment, options);
}
bool check_in(
    c10d::Store& store,
    const LaunchEnvironment& environment,
    const InitOptions& options) {
  constexpr const char* kRoll = "roll"; // holds the missing ranks
  constexpr const char* kChecks = "checks_collectives";
  take_seat(store, environment);
  std::string missing;
  if (environment.rank == 0) {
    store.set(kChecks, bytes(options.check_collectives ? "yes" : "no"));
    missing =
        call_the_roll(store, environment.world_size, options.start_timeout);
    store.set(kRoll, bytes("missing: " + missing));
    if (!missing.empty()) {
      let_others_hear(store, environment.world_size);
    }
  } else {
    try {
      // Rank 0 waits as long, and may have begun later.
      store.wait({kRoll}, 2 * options.start_timeout);
    } catch (const c10::Error& error) {
      C10_THROW_ERROR(
          DistStoreError,
          c10::str(
              who(environment),
              ": lost rank 0 while waiting for all ranks to start: ",
              error.what_without_backtrace()));
    }
    missing = text(store.get(kRoll)).substr(std::string("missing: ").size());
    store.set(heard(environment.rank), bytes("yes"));
  }
  if (!missing.empty()) {
    C10_THROW_ERROR(
        DistStoreError,
        c10::str(
            who(environment),
            ": not all ranks started within ",
            seconds(options.start_timeout),
            "; missing: ",
            missing));
  }
  return text(store.get(kChecks)) == "yes";
}

Connections connect(
    const c10::intrusive_ptr<c10d::Store>& store,
    const LaunchEnvironment& environment,
    const InitOptions& options) {
  using c10d::ProcessGroup;
  const auto prefixed = [&](const char* name) {
    return c10::make_intrusive<c10d::PrefixStore>(name, store);
  };
  survive_broken_pipes();
  try {
    auto group = c10::make_intrusive<ProcessGroup>(
        prefixed("group"), environment.rank, environment.world_size);
    group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    auto gloo = make_gloo_group(
        options.with_python
            ? c10::make_intrusive<c10d::PrefixStore>("cpu/", prefixed("0/"))
            : prefixed("gloo"),
        environment,
        options);
    group->setBackend(at::kCPU, ProcessGroup::BackendType::GLOO, gloo);
    group->setGroupName("default");
    if (options.check_collectives) {
      gloo->set_check(std::make_unique<CollectiveCheck>(
          make_gloo_group(prefixed("check"), environment, options)));
    }
    // Others may still read the store, which would go if rank 0 left early.
    if (!options.with_python) {
      group->barrier()->wait();
    }
    return {std::move(group), std::move(gloo)};
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const c10::Error*>(&error);
    C10_THROW_ERROR(
        DistNetworkError,
        c10::str(
            who(environment),
            ": the ranks could not be connected: ",
            known != nullptr ? known->what_without_backtrace() : error.what()));
  }
}

} // namespace ampkit::dist
