#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <ampkit/diagnose/bisect.h>
#include <ampkit/io/json_lines.h>
#include <ampkit/zoo/train/capsule_pass.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "capsule_choice.h"
#include "command.h"
#include "interrupt.h"

namespace ampkit::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBisectFooter =
    R"(Takes the step of a capsule (see `ampkit diagnose --help`) again and again, each time
with other layers in FP32, until it has the smallest set of layers that must be: for the
loss and the gradients to be finite, and within bounds of FP32. Then the same for ops.
What it finds is proved by a last run, and written as a policy that `ampkit train` takes
as precision.policy.

Each run is noted beside the capsule, FILE.bisect.jsonl: a search that was interrupted
goes on where it was.

Examples:
  ampkit bisect runs/fashion-resnet
  ampkit bisect runs/fashion-resnet --step 40 --precision fp16-mixed --out cure.toml
  ampkit train configs/fashion-resnet.toml --set precision.policy=cure.toml

Exit status: 0 a policy was written, or none is needed; 1 precision is not the cause, or
no layer and no op cures it; 2 wrong usage, 3 capsule damaged or not one of ampkit train,
130 interrupted.)";

struct BisectArguments {
  CapsuleChoice choice;
  std::string precision;
  std::string device = "cpu";
  std::string out;
  diagnose::BisectBounds bounds;
  int64_t max_runs = 0;
  bool no_ops = false;
  bool json = false;
};

constexpr char kSeparator = '\n'; // no module path has one

// The runs of a search, in a file that outlives it.
class RunLog {
 public:
  // What must be the same for answers to be of use.
  RunLog(const std::string& path, const std::string& settings) {
    if (fs::exists(path)) {
      read(path, settings);
    }
    writer_.emplace(path);
    settings_ = settings;
  }

  const std::vector<diagnose::SearchTrial>& known() const { return known_; }

  void append(const diagnose::SearchTrial& trial) {
    io::StateDict row;
    row.set("settings", settings_);
    row.set("float32", c10::Join(std::string(1, kSeparator), trial.chosen));
    row.set("good", trial.good);
    writer_->append(row);
  }

 private:
  void read(const std::string& path, const std::string& settings) {
    for (const auto& row : io::read_json_lines(path)) {
      if (row.text("settings") != settings) {
        continue;
      }
      diagnose::SearchTrial trial{.good = row.boolean("good")};
      std::istringstream names(row.text("float32"));
      for (std::string name; std::getline(names, name, kSeparator);) {
        trial.chosen.push_back(name);
      }
      known_.push_back(std::move(trial));
    }
  }

  std::vector<diagnose::SearchTrial> known_;
  std::optional<io::JsonLinesWriter> writer_;
  std::string settings_;
};

void show_progress(const diagnose::SearchTrial& trial, int64_t runs) {
  std::cerr << fmt::format(
      "run {}: {} in FP32: {}\n",
      runs,
      trial.chosen.size() == 1 ? "1 layer"
                               : fmt::format("{} layers", trial.chosen.size()),
      trial.good ? "good" : "bad");
}

nlohmann::ordered_json json_of_set(const diagnose::MinimalSet& set) {
  return {
      {"end", to_string(set.end)}, {"float32", set.chosen}, {"runs", set.runs}};
}

nlohmann::ordered_json json_of_error(const diagnose::RunError& error) {
  if (!error.finite) {
    return {{"finite", false}};
  }
  return {{"finite", true}, {"loss", error.loss}, {"values", error.values}};
}

void print(const BisectArguments& arguments, const diagnose::Bisection& found) {
  if (arguments.json) {
    const nlohmann::ordered_json json{
        {"layers", json_of_set(found.layers)},
        {"ops", json_of_set(found.ops)},
        {"without", json_of_error(found.without)},
        {"with", json_of_error(found.with)},
        {"policy", to_toml(found.policy)}};
    std::cout << json.dump(2) << "\n";
  } else {
    std::cout << to_string(found);
  }
}

bool is_cured(const diagnose::Bisection& found) {
  return found.layers.end == diagnose::SearchEnd::none_needed ||
         !found.layers.chosen.empty() || !found.ops.chosen.empty();
}

// Where the policy goes: beside the capsule, unless --out says otherwise.
std::string policy_path(
    const BisectArguments& arguments, const diagnose::Capsule& capsule) {
  return arguments.out.empty() ? capsule.path + ".policy.toml" : arguments.out;
}

void finish(
    const BisectArguments& arguments,
    const diagnose::Capsule& capsule,
    const diagnose::Bisection& found) {
  print(arguments, found);
  std::cout << std::flush;
  if (found.layers.end == diagnose::SearchEnd::interrupted) {
    throw CLI::RuntimeError(kInterrupted);
  }
  if (found.policy != PrecisionPolicy()) {
    const auto path = policy_path(arguments, capsule);
    save_precision_policy(path, found.policy);
    std::cerr << "the policy is in " << path << "\n";
  }
  if (!is_cured(found)) {
    throw CLI::RuntimeError(kFailed);
  }
}

void run_bisect(const BisectArguments& arguments) {
  auto run = zoo::open_capsule(
      choose_capsule(arguments.choice), zoo::capsule_pass_overrides());
  const auto precision = arguments.precision.empty()
                             ? precision_name_of(run.capsule)
                             : arguments.precision;
  diagnose::BisectOptions options{
      .device = c10::Device(arguments.device),
      .precision = Precision::parse(precision),
      .bounds = arguments.bounds,
      .search_ops = !arguments.no_ops};
  run.model.module->to(options.device);
  RunLog log(
      run.capsule.path + ".bisect.jsonl",
      fmt::format(
          "{} {} {}",
          precision,
          arguments.bounds.loss,
          arguments.bounds.values));
  catch_interrupts();
  options.search = {
      .max_runs = arguments.max_runs,
      .known = log.known(),
      .on_run =
          [&](const diagnose::SearchTrial& trial, int64_t runs) {
            log.append(trial);
            show_progress(trial, runs);
          },
      .interrupted = interrupted};
  if (!log.known().empty()) {
    std::cerr << fmt::format("{} runs are known\n", log.known().size());
  }
  const auto found = diagnose::bisect_precision(
      *run.model.module, zoo::capsule_pass(run), options);
  finish(arguments, run.capsule, found);
}

} // namespace

void add_bisect_command(CLI::App& app) {
  const auto arguments = std::make_shared<BisectArguments>();
  auto* command =
      app.add_subcommand("bisect", "Find the layers that must stay in FP32");
  command->footer(kBisectFooter);
  add_capsule_options(*command, arguments->choice);
  command
      ->add_option(
          "--precision",
          arguments->precision,
          "What is to be kept wherever possible; that of the run")
      ->type_name("PRESET");
  command
      ->add_option(
          "--loss",
          arguments->bounds.loss,
          "How far the loss may be from FP32's, as a share of it")
      ->capture_default_str()
      ->check(CLI::Range(1e-12, 1e6));
  command
      ->add_option(
          "--gradients",
          arguments->bounds.values,
          "And the gradients, all together")
      ->capture_default_str()
      ->check(CLI::Range(1e-12, 1e6));
  command
      ->add_option(
          "--max-runs",
          arguments->max_runs,
          "Most runs for layers; 0: no limit")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--out", arguments->out, "Where the policy is written")
      ->type_name("FILE.toml");
  command->add_option("--device", arguments->device, "Where it runs")
      ->capture_default_str();
  command->add_flag("--no-ops", arguments->no_ops, "Search layers only");
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->callback([arguments] { run_bisect(*arguments); });
}

} // namespace ampkit::app
