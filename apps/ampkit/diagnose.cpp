#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <ampkit/diagnose/capsule.h>
#include <ampkit/diagnose/flight_recorder.h>
#include <ampkit/zoo/train/capsule_run.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"
#include "diagnose_output.h"

namespace ampkit::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDiagnoseFooter =
    R"(A capsule is a step that ampkit train saved in RUN/capsules: the first of a row whose
loss was inf or NaN, one skipped as the tenth in a row, or the next one after SIGUSR1
(keys [diagnose] of the configuration). It has weights, optimizer, batch and random
numbers in it, so that the step is done again to the same bits, with every op watched;
neither the data set nor the run is needed.

Printed are the last steps of the run, what the replay gave, and where the first bad
value was born: op, module, tensors, and what to do.

Examples:
  ampkit diagnose runs/fashion-resnet
  ampkit diagnose runs/fashion-resnet --step 40 --json
  ampkit diagnose runs/fashion-resnet/capsules/step-000000000040.safetensors

Exit status: 0 nothing is wrong with the step, or with the run, 5 something is, and is
printed; 2 wrong usage, 3 capsule damaged or not one of ampkit train.)";

struct DiagnoseArguments {
  std::string path;
  std::optional<int64_t> step;
  std::optional<int> rank;
  std::string device;
  bool json = false;
};

bool is_run(const fs::path& path) {
  return fs::exists(path / "config.toml");
}

std::optional<diagnose::FlightLog> flight_of(const fs::path& run) {
  const auto file = run / "flight.bin";
  return fs::exists(file) ? std::optional(diagnose::read_flight(file.string()))
                          : std::nullopt;
}

// The latest that fits, if there are any at all.
std::optional<diagnose::Capsule> choose(
    const DiagnoseArguments& arguments, const std::vector<std::string>& paths) {
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    auto capsule = diagnose::load_capsule(*path);
    if (capsule.step == arguments.step.value_or(capsule.step) &&
        capsule.rank == arguments.rank.value_or(capsule.rank)) {
      return capsule;
    }
  }
  if (arguments.step || arguments.rank) {
    throw UsageError(fmt::format(
        "diagnose: {} has no capsule of that step and rank; it has {}",
        arguments.path,
        paths.empty() ? "none" : c10::Join(", ", paths)));
  }
  return std::nullopt;
}

void run_diagnose(const DiagnoseArguments& arguments) {
  Diagnosis diagnosis;
  const bool run = is_run(arguments.path);
  if (run) {
    diagnosis.flight = flight_of(arguments.path);
    const auto folder = fs::path(arguments.path) / "capsules";
    if (fs::exists(folder)) {
      diagnosis.capsules = diagnose::find_capsules(folder.string());
    }
  } else {
    diagnosis.capsules = diagnose::find_capsules(arguments.path);
  }
  diagnosis.capsule = choose(arguments, diagnosis.capsules);
  if (!diagnosis.capsule && !run) {
    diagnose::load_capsule(arguments.path); // throws, saying what is missing
  }
  if (diagnosis.capsule) {
    std::vector<std::string> overrides;
    if (!arguments.device.empty()) {
      overrides.push_back("train.device=" + arguments.device);
    }
    auto again = zoo::open_capsule(*diagnosis.capsule, overrides);
    diagnosis.replay = zoo::replay(again);
  }
  std::cout << (arguments.json ? json_of(diagnosis) : text_of(diagnosis));
  if (diagnosis.replay && diagnosis.replay->finding) {
    std::cout << std::flush;
    throw CLI::RuntimeError(kFound);
  }
}

} // namespace

void add_diagnose_command(CLI::App& app) {
  const auto arguments = std::make_shared<DiagnoseArguments>();
  auto* command = app.add_subcommand(
      "diagnose", "Say where the NaN of a saved step was born");
  command->footer(kDiagnoseFooter);
  command
      ->add_option(
          "path", arguments->path, "Folder of a run, or a capsule of it")
      ->required()
      ->check(CLI::ExistingPath)
      ->type_name("RUN|FILE");
  command->add_option("--step", arguments->step, "Of which step; the latest")
      ->type_name("N");
  command->add_option("--rank", arguments->rank, "Of which rank")
      ->type_name("N");
  command
      ->add_option(
          "--device", arguments->device, "Where to replay it; where it ran")
      ->type_name("DEVICE");
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->callback([arguments] { run_diagnose(*arguments); });
}

} // namespace ampkit::app
