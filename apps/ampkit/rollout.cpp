#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/rollout.h>
#include <ampkit/zoo/train/run.h>
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"
#include "interrupt.h"

namespace ampkit::app {
namespace {

constexpr const char* kRolloutFooter =
    R"(Trains the first steps of a configuration in FP32, then in its own precision, from the
same weights on the same batches, and says whether loss, gradient norms, loss scale and
share of steps that are not finite are within bounds. With --train the whole run follows
if they are, and an alarm is printed where it leaves those bounds.

Examples:
  ampkit rollout configs/fashion-resnet.toml
  ampkit rollout configs/fashion-resnet.toml --steps 200 --set precision.preset=bf16-mixed
  ampkit rollout configs/fashion-resnet.toml --train

Exit status: 0 passed, 5 failed, with what failed printed; 2 wrong usage, configuration or
data, 130 interrupted.)";

struct RolloutArguments {
  std::string config;
  std::vector<std::string> overrides;
  int64_t steps = 100;
  zoo::RolloutBounds bounds;
  bool train = false;
};

void print_now_and_then(
    const zoo::StepRecord& record,
    const std::string& precision,
    int64_t steps) {
  if (record.step % std::max<int64_t>(steps / 5, 1) == 0) {
    std::cout << fmt::format(
                     "{}: step {} of {}, loss {:.4g}, scale {:g}\n",
                     precision,
                     record.step,
                     steps,
                     record.loss,
                     record.scale)
              << std::flush;
  }
}

void train_with_alarms(
    const zoo::RunConfig& config,
    const zoo::RolloutResult& result,
    const zoo::RolloutBounds& bounds) {
  zoo::RolloutAlarms alarms(result, config.precision.min_scale, bounds);
  const auto done = zoo::train_run(
      config,
      {.on_step =
           [&](const auto& record) {
             for (const auto& alarm : alarms.on_step(record)) {
               std::cout << "ALARM  " << alarm << std::endl;
             }
           },
       .on_eval =
           [](const auto& record) {
             std::cout << fmt::format(
                              "step {}: test accuracy {:.2f} %\n",
                              record.step,
                              100 * record.best_accuracy())
                       << std::flush;
           },
       .should_stop = interrupted,
       .on_note = [](const auto& text) { std::cout << text << std::endl; }});
  if (done.reason == zoo::StopReason::stopped) {
    throw CLI::RuntimeError(kInterrupted);
  }
}

void run_rollout(const RolloutArguments& arguments) {
  const auto config = zoo::load_config(arguments.config, arguments.overrides);
  catch_interrupts();
  const auto result = zoo::rollout(
      config,
      zoo::open_data(config.data),
      arguments.steps,
      arguments.bounds,
      [&](const auto& record, bool low) {
        print_now_and_then(
            record, low ? config.precision.preset : "fp32", arguments.steps);
      },
      interrupted);
  if (!result) {
    throw CLI::RuntimeError(kInterrupted);
  }
  std::cout << to_string(*result) << std::flush;
  if (!result->pass()) {
    throw CLI::RuntimeError(kFound);
  }
  if (arguments.train) {
    train_with_alarms(config, *result, arguments.bounds);
  }
}

} // namespace

void add_rollout_command(CLI::App& app) {
  const auto arguments = std::make_shared<RolloutArguments>();
  auto* command = app.add_subcommand(
      "rollout", "Try a precision on the first steps before the whole run");
  command->footer(kRolloutFooter);
  command->add_option("config", arguments->config, "Configuration, a TOML file")
      ->required()
      ->type_name("CONFIG");
  command
      ->add_option(
          "--set",
          arguments->overrides,
          "Change keys of the configuration: section.key=value, any number")
      ->type_name("KEY=VALUE");
  command->add_option("--steps", arguments->steps, "Of each of the two runs")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option(
          "--loss",
          arguments->bounds.loss,
          "How far the loss may be from FP32's, as a share of it")
      ->capture_default_str()
      ->check(CLI::Range(1e-12, 1e6));
  command
      ->add_option(
          "--grad-norm",
          arguments->bounds.grad_norm,
          "How many times larger or smaller gradient norms may be")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e9));
  command
      ->add_option(
          "--nan-rate",
          arguments->bounds.nan_rate,
          "Share of steps that may be not finite")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag(
      "--train", arguments->train, "Train the whole run if it passes");
  command->callback([arguments] { run_rollout(*arguments); });
}

} // namespace ampkit::app
