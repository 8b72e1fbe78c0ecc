#include <charconv>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/dist/launch.h>
#include <fmt/format.h>
#include <sched.h>
#include <torch/cuda.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"
#include "flight_folder.h"

namespace ampkit::app {
namespace {

constexpr const char* kFooter =
    R"(Starts PROGRAM several times, as ranks that train together. Each gets the
environment variables of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT and the rest. ampkit::dist::init() reads them, and so does
Python's torch.distributed.init_process_group().

Each line that a rank prints is shown with "[rank N]" before it. With --log-dir
everything is kept in DIR/start-N/rank-N.out and .err, and only the lines of this
machine's first rank are shown.

When a rank fails, the others get SIGTERM, and 5 s later SIGKILL. SIGINT (Ctrl-C),
SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to all ranks. No rank outlives
ampkit run, not even if that gets SIGKILL. With --max-restarts all ranks are started
anew after a failure; TORCHELASTIC_RESTART_COUNT tells them how often, and they should
go on from their last checkpoint.

The last steps of a rank that fails are shown too if it kept a flight recorder, as
ampkit train does, and any program with ampkit::diagnose::FlightRecorder.

Each rank gets its share of the cores, and OMP_NUM_THREADS to fit unless that is set.

On one machine nothing listens beyond loopback. On several, run it on each with the
same --nnodes, --master-addr and --master-port and its own --node-rank. Their network
must be trusted: neither the store nor the connections know who calls.

Examples:
  ampkit run --nproc-per-node 2 -- ./my_training --epochs 3
  ampkit run --nproc-per-node gpu --log-dir logs -- ./my_training
  ampkit run --nproc-per-node 4 --max-restarts 3 -- python train.py
  ampkit run --nnodes 2 --node-rank 0 --master-addr node0 --nproc-per-node 8 -- ./my_training
  ampkit run --nnodes 2 --node-rank 1 --master-addr node0 --nproc-per-node 8 -- ./my_training

Exit status: 0 all ranks ended with 0; else that of the rank that failed first, or
128 + signal if one killed it; 2 wrong usage.)";

struct Arguments {
  std::string nproc_per_node = "1";
  std::string bind = "cores";
  double grace_period = 30;
  dist::LaunchOptions options;
  std::vector<std::string> command;
};

int usable_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  return sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable)
                                                            : 1;
}

int ranks_here(const std::string& text) {
  const auto gpus = static_cast<int>(
      static_cast<unsigned char>(torch::cuda::device_count())); // from int8
  if (text == "gpu") {
    if (gpus == 0) {
      throw UsageError("run: --nproc-per-node gpu: there is no GPU here");
    }
    return gpus;
  }
  if (text == "auto") {
    return gpus > 0 ? gpus : usable_processors();
  }
  int number = 0;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    throw UsageError(
        "run: --nproc-per-node must be a number, auto or gpu, got '" + text +
        "'");
  }
  return number;
}

void show(const dist::RankLine& line, const dist::LaunchOptions& options) {
  const int first = options.node_rank * options.nproc_per_node;
  if (!options.log_dir.empty() && line.rank != first) {
    return;
  }
  const bool alone = options.nproc_per_node * options.nnodes == 1;
  auto& out = line.to_stderr ? std::cerr : std::cout;
  out << (alone ? line.text
                : fmt::format("[rank {}] {}", line.rank, line.text)) +
             "\n"
      << std::flush;
}

void report(
    const dist::RankFailure& failure,
    const std::string& log_dir,
    const std::string& last_steps) {
  std::string text = "ampkit: error: " + failure.describe();
  text += failure.last_lines.empty() ? ", having printed nothing"
                                     : "; the last it printed:";
  for (const auto& line : failure.last_lines) {
    text += "\n  | " + line;
  }
  if (!log_dir.empty()) {
    text += "\nall output is in " + log_dir;
  }
  std::cerr << text + "\n" + last_steps;
}

void run_ranks(Arguments& arguments) {
  auto& options = arguments.options;
  options.nproc_per_node = ranks_here(arguments.nproc_per_node);
  options.bind_cores = arguments.bind == "cores";
  options.interrupt_grace = std::chrono::milliseconds(
      static_cast<int64_t>(arguments.grace_period * 1000));
  options.on_line = [&](const auto& line) { show(line, options); };
  options.on_note = [](const auto& text) {
    std::cerr << "ampkit run: " + text + "\n";
  };
  const FlightFolder flights;
  const auto result = dist::launch(arguments.command, options);
  if (result.failure) {
    report(
        *result.failure,
        options.log_dir,
        flights.last_steps(result.failure->rank));
  }
  if (result.status != 0) {
    throw CLI::RuntimeError(result.status);
  }
}

void add_node_options(CLI::App& command, dist::LaunchOptions& options) {
  command.add_option("--nnodes", options.nnodes, "Machines")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option(
          "--node-rank", options.node_rank, "Which of them this is, from 0")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option(
          "--master-addr",
          options.master_addr,
          "Address of the first machine; 127.0.0.1 if it is the only one")
      ->type_name("HOST");
  command
      .add_option(
          "--master-port",
          options.master_port,
          "Port there; a free one, or 29500 with several machines")
      ->type_name("PORT");
}

void add_run_options(CLI::App& command, Arguments& arguments) {
  command
      .add_option(
          "--nproc-per-node",
          arguments.nproc_per_node,
          "Ranks on this machine; gpu: one for each GPU, auto: that, or one "
          "for each processor if there is no GPU")
      ->type_name("N|auto|gpu")
      ->capture_default_str();
  add_node_options(command, arguments.options);
  command
      .add_option(
          "--max-restarts",
          arguments.options.max_restarts,
          "Start all ranks anew up to N times when one fails")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option(
          "--log-dir",
          arguments.options.log_dir,
          "Keep the output of each rank in files there")
      ->type_name("DIR");
  command
      .add_option(
          "--bind", arguments.bind, "Give each rank cores of its own, or not")
      ->check(CLI::IsMember({"cores", "none"}))
      ->capture_default_str();
  command
      .add_option(
          "--grace-period",
          arguments.grace_period,
          "Ranks that got SIGINT or SIGTERM have so long to save, then SIGKILL")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command
      .add_option(
          "program", arguments.command, "Program and, behind --, its arguments")
      ->type_name("FILE")
      ->required()
      ->expected(1, -1);
}

} // namespace

void add_run_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "run", "Start a program as several ranks that train together");
  command->footer(kFooter);
  add_run_options(*command, *arguments);
  command->callback([arguments] { run_ranks(*arguments); });
}

} // namespace ampkit::app
