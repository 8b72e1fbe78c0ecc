#include <ampkit/dist/launch.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>

#include <c10/util/Exception.h>

#include "dist/core_binding.h"
#include "dist/launch_signals.h"
#include "dist/loopback.h"
#include "dist/orphan_watcher.h"
#include "dist/rank_set.h"

namespace ampkit::dist {
namespace {

constexpr int kUsualPort = 29500; // torchrun's

void check_launch_range(const char* name, int value, int least, int most) {
  TORCH_CHECK_VALUE(
      value >= least && value <= most,
      "dist::launch: ",
      name,
      " must be in [",
      least,
      ", ",
      most,
      "], got ",
      value);
}

using Environment = std::map<std::string, std::string>;

Environment own_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) {
      result[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
  }
  return result;
}

std::vector<std::string> as_list(const Environment& environment) {
  std::vector<std::string> list;
  for (const auto& [name, value] : environment) {
    list.push_back(c10::str(name, "=", value));
  }
  return list;
}

/// All starts of one launch().
class Launch {
 public:
  Launch(const std::vector<std::string>& command, const LaunchOptions& options)
      : command_(command),
        options_(options),
        cores_(share_cores(
            usable_processors(), options.nproc_per_node, options.bind_cores)),
        watcher_(options.failure_grace) {}

  LaunchResult run() {
    LaunchResult result;
    for (;; ++result.restarts) {
      RankSet ranks(options_, signals_, watcher_);
      start_all(ranks, result.restarts);
      ranks.run();
      result.status = ranks.status();
      result.failure = ranks.failure();
      result.interrupted_by = ranks.interrupted_by();
      if (!result.failure || result.restarts == options_.max_restarts ||
          result.interrupted_by != 0) {
        return result;
      }
      note(c10::str(
          result.failure->describe(),
          "; starting all ranks anew, ",
          result.restarts + 1,
          " of ",
          options_.max_restarts));
    }
  }

 private:
  void note(const std::string& text) const {
    if (options_.on_note) {
      options_.on_note(text);
    }
  }

  void start_all(RankSet& ranks, int start) {
    std::optional<ReservedPort> reserved;
    int port = options_.master_port;
    if (port == 0 && options_.nnodes == 1) {
      // A new one: the last start's may not be free again.
      reserved.emplace();
      port = reserved->port();
    } else if (port == 0) {
      port = kUsualPort;
    }
    std::string folder;
    if (!options_.log_dir.empty()) {
      folder = options_.log_dir + "/start-" + std::to_string(start);
      std::filesystem::create_directories(folder);
    }
    for (int local = 0; local < options_.nproc_per_node; ++local) {
      const int rank = options_.node_rank * options_.nproc_per_node + local;
      ranks.start(
          rank,
          folder.empty() ? "" : folder + "/rank-" + std::to_string(rank),
          {.command = command_,
           .environment = as_list(environment_of(local, rank, port, start)),
           .cores = cores_[static_cast<size_t>(local)]});
    }
    ports_.push_back(std::move(reserved)); // until this launch() has ended
  }

  Environment environment_of(int local, int rank, int port, int start) const {
    auto result = own_environment();
    const auto world =
        std::to_string(options_.nproc_per_node * options_.nnodes);
    const auto set = [&](const char* name, int value) {
      result[name] = std::to_string(value);
    };
    set("RANK", rank);
    set("LOCAL_RANK", local);
    set("LOCAL_WORLD_SIZE", options_.nproc_per_node);
    set("GROUP_RANK", options_.node_rank);
    set("GROUP_WORLD_SIZE", options_.nnodes);
    set("ROLE_RANK", rank);
    set("MASTER_PORT", port);
    set("TORCHELASTIC_RESTART_COUNT", start);
    set("TORCHELASTIC_MAX_RESTARTS", options_.max_restarts);
    result["WORLD_SIZE"] = result["ROLE_WORLD_SIZE"] = world;
    result["ROLE_NAME"] = "default";
    result["MASTER_ADDR"] =
        options_.master_addr.empty() ? "127.0.0.1" : options_.master_addr;
    result["TORCHELASTIC_USE_AGENT_STORE"] = "False";
    result["TORCHELASTIC_RUN_ID"] = std::to_string(::getpid());
    result.try_emplace(
        "OMP_NUM_THREADS",
        std::to_string(cores_[static_cast<size_t>(local)].threads));
    return result;
  }

  const std::vector<std::string>& command_;
  const LaunchOptions& options_;
  std::vector<CoreShare> cores_;
  OrphanWatcher watcher_; // before the signals are blocked, which it inherits
  LaunchSignals signals_;
  std::vector<std::optional<ReservedPort>> ports_;
};

} // namespace

void LaunchOptions::check() const {
  check_launch_range(
      "nproc_per_node", nproc_per_node, 1, OrphanWatcher::kMaxGroups);
  check_launch_range("nnodes", nnodes, 1, 1 << 16);
  check_launch_range("node_rank", node_rank, 0, nnodes - 1);
  check_launch_range("master_port", master_port, 0, 65535);
  check_launch_range("max_restarts", max_restarts, 0, 1 << 20);
  TORCH_CHECK_VALUE(
      nnodes == 1 || !master_addr.empty(),
      "dist::launch: master_addr must be given with ",
      nnodes,
      " nodes: the address of the first");
  TORCH_CHECK_VALUE(
      nnodes == 1 || max_restarts == 0,
      "dist::launch: max_restarts must be 0 with ",
      nnodes,
      " nodes, got ",
      max_restarts,
      ": the launchers of several nodes do not know of each other");
  TORCH_CHECK_VALUE(
      failure_grace.count() >= 0 && interrupt_grace.count() >= 0,
      "dist::launch: failure_grace and interrupt_grace must be >= 0, got ",
      failure_grace.count(),
      " and ",
      interrupt_grace.count(),
      " ms");
}

std::string RankFailure::describe() const {
  const auto who = c10::str("rank ", rank, " (process ", process, ") ");
  return signal != 0 ? c10::str(
                           who,
                           "was killed by signal ",
                           signal,
                           " (",
                           ::strsignal(signal),
                           ")")
                     : c10::str(who, "ended with status ", status);
}

LaunchResult launch(
    const std::vector<std::string>& command, const LaunchOptions& options) {
  options.check();
  TORCH_CHECK_VALUE(
      !command.empty(), "dist::launch: command must name a program, got none");
  return Launch(command, options).run();
}

} // namespace ampkit::dist
