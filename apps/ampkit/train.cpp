#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ampkit/dist/context.h>
#include <ampkit/dist/launch_environment.h>
#include <ampkit/zoo/report/machine.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/run.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"
#include "interrupt.h"
#include "progress.h"

namespace ampkit::app {
namespace {

constexpr const char* kFooter =
    R"(The configuration is a TOML file; keys that it leaves out have their defaults.
`ampkit train --keys` lists every key with its default and meaning. A misspelt
key or a wrong value is an error.

A run keeps everything in one folder, <output.dir>/<output.name>: config.toml,
machine.json, metrics.jsonl, TensorBoard events, checkpoints/ and, at the end,
report.html.

Ctrl-C (SIGINT, SIGTERM) finishes the step, saves and exits with status 130; a
second one stops at once. --resume goes on from the latest checkpoint, also
after a crash, and ends in the same weights, bit for bit, as a run that was
never stopped.

A step whose loss is inf or NaN is saved, as is the next one after SIGUSR1; `ampkit
diagnose RUN` does it again and says what went wrong.

Under `ampkit run`, torchrun, srun or mpirun the ranks share each batch: the same
run, faster, of which rank 0 prints and writes everything. It can be resumed on any
other number of ranks.

Examples:
  ampkit train configs/fashion-resnet.toml
  ampkit run --nproc-per-node 2 -- ampkit train configs/fashion-resnet.toml
  ampkit train configs/fashion-resnet.toml --set precision.preset=bf16-mixed
  ampkit train configs/fashion-resnet.toml --set train.epochs=5 optimizer.lr=3e-3
  ampkit train configs/fashion-resnet.toml --output runs/try-2
  ampkit train configs/fashion-resnet.toml --output runs/try-2 --resume

Exit status: 0 done, 1 training failed, 2 wrong usage, configuration or data,
3 checkpoint damaged or of another configuration, 4 another rank was lost, 130
interrupted after saving.)";

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string output;
  bool resume = false;
  bool overwrite = false;
  bool keys = false;
  std::vector<std::string> faults;
};

void print_keys() {
  std::string section;
  for (const auto& key : zoo::config_keys()) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      std::cout << (section.empty() ? "" : "\n");
      section = key.name.substr(0, dot);
      std::cout << "[" << section << "]\n";
    }
    std::cout << fmt::format(
        "{} = {}\n    {}; {}\n",
        key.name.substr(dot + 1),
        key.default_value,
        key.help,
        key.expected);
  }
}

zoo::RunConfig read_config(const Arguments& arguments) {
  auto config = zoo::load_config(arguments.config, arguments.overrides);
  if (!arguments.output.empty()) {
    // "runs/try-2/" is runs/try-2, and "try-2" lies in the current folder.
    auto path = arguments.output;
    while (path.size() > 1 && path.ends_with('/')) {
      path.pop_back();
    }
    const auto slash = path.rfind('/');
    config.output.dir =
        slash == std::string::npos ? "." : path.substr(0, slash + 1);
    config.output.name = path.substr(slash + 1);
  }
  for (const auto& fault : arguments.faults) {
    auto& all = config.diagnose.inject;
    all += (all.empty() ? "" : "; ") + fault;
  }
  return config;
}

ProgressOptions progress_options(const zoo::Trainer& trainer) {
  ProgressOptions options{
      .terminal = isatty(STDOUT_FILENO) == 1,
      .total_steps = trainer.total_steps(),
      .epochs = trainer.epochs()};
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.width = size.ws_col;
  }
  return options;
}

// The training fails with a message of its own, unless it is busy with what
// needs no other rank.
void end_without_lost_rank(const std::string& lost) {
  std::this_thread::sleep_for(std::chrono::seconds(3));
  std::cerr << "ampkit: error: " + lost + "\n" << std::flush;
  std::_Exit(kLostPeer);
}

// This process among those that were started together; none if it is alone.
std::optional<dist::Context> find_ranks() {
  const auto environment = dist::read_launch_environment();
  if (environment.world_size == 1) {
    return std::nullopt;
  }
  return dist::init(environment, {.on_lost_rank = end_without_lost_rank});
}

// Ranks that print nothing end with the same status.
void check_stopped(const zoo::RunResult& result) {
  if (result.reason == zoo::StopReason::stopped) {
    throw CLI::RuntimeError(kInterrupted);
  }
}

void print_result(const zoo::RunResult& result) {
  if (result.reason == zoo::StopReason::stopped) {
    std::cout << fmt::format(
        "stopped at step {}, saved in {}; --resume goes on\n",
        result.step,
        result.folder);
    return;
  }
  if (!result.last_eval) {
    std::cout << fmt::format(
        "{} had finished at step {}: nothing to do\n",
        result.folder,
        result.step);
  } else {
    std::cout << fmt::format(
        "done: {} steps, test accuracy {:.2f} %, {:.1f} s, in {}\n",
        result.step,
        100 * result.last_eval->best_accuracy(),
        result.seconds,
        result.folder);
  }
  if (!result.report.empty()) {
    std::cout << "report: " << result.report << "\n";
  }
}

// What ends this rank is told to the others.
zoo::RunResult train_or_tell(
    const zoo::RunConfig& config, const zoo::RunOptions& options) {
  try {
    return zoo::train_run(config, options);
  } catch (const c10::DistError&) {
    throw; // another one was the first
  } catch (const c10::Error& error) {
    if (options.context) {
      options.context->abort(error.msg());
    }
    throw;
  }
}

void train(const Arguments& arguments) {
  if (arguments.keys) {
    print_keys();
    return;
  }
  if (arguments.config.empty()) {
    throw UsageError("train: no configuration file; see `ampkit train --help`");
  }
  const auto config = read_config(arguments);
  std::unique_ptr<Progress> progress;
  zoo::RunOptions options{
      .resume = arguments.resume,
      .overwrite = arguments.overwrite,
      .on_step = [&](const auto& record) { progress->on_step(record); },
      .on_eval = [&](const auto& record) { progress->on_eval(record); },
      .should_stop = interrupted,
      .should_capture = capture_asked,
      .on_note = [](const auto& text) { std::cout << text << std::endl; },
      .context = find_ranks()};
  options.on_start = [&](const zoo::Trainer& trainer, const zoo::Model& model) {
    const auto& policy = config.precision.policy;
    std::cout
        << zoo::collect_machine().to_text_short()
        << fmt::format(
               "training {} ({} parameters) in {}{}, {} steps, {} epochs{}, "
               "into {}\n",
               config.model.name,
               zoo::count_parameters(model),
               config.precision.preset,
               policy == "pytorch" ? "" : ", policy " + policy,
               trainer.total_steps(),
               trainer.epochs(),
               options.context
                   ? fmt::format(", {} ranks", options.context->world_size())
                   : "",
               zoo::run_folder(config))
        << std::flush;
    progress = std::make_unique<Progress>(std::cout, progress_options(trainer));
  };
  catch_interrupts();
  catch_capture_requests();
  const auto result = train_or_tell(config, options);
  if (!options.context || options.context->rank() == 0) {
    print_result(result);
  }
  check_stopped(result);
}

} // namespace

void add_train_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("train", "Train a network from a TOML file");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("config", arguments->config, "Configuration, a TOML file")
      ->type_name("CONFIG");
  command
      ->add_option(
          "--set",
          arguments->overrides,
          "Change keys of the configuration: section.key=value, any number")
      ->type_name("KEY=VALUE");
  command
      ->add_option(
          "--output",
          arguments->output,
          "Folder of this run, instead of <output.dir>/<output.name>")
      ->type_name("DIR");
  auto* resume = command->add_flag(
      "--resume",
      arguments->resume,
      "Go on from the latest checkpoint of the folder, if it has one");
  command
      ->add_flag(
          "--overwrite",
          arguments->overwrite,
          "Delete the run that is in the folder and begin anew")
      ->excludes(resume);
  command
      ->add_option(
          "--inject",
          arguments->faults,
          "Plant a fault, to see what becomes of it: \"overflow at=layer2 "
          "step=40 rank=1\"; any number of times")
      ->type_name("FAULT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag(
      "--keys",
      arguments->keys,
      "List every key of the configuration and exit");
  command->footer(kFooter);
  command->callback([arguments] { train(*arguments); });
}

} // namespace ampkit::app
