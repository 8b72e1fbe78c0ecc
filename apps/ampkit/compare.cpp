#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include <ampkit/diagnose/compare.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/zoo/train/capsule_pass.h>
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "capsule_choice.h"
#include "command.h"
#include "policy_choice.h"

namespace ampkit::app {
namespace {

using CompareJson = nlohmann::ordered_json;

constexpr const char* kCompareFooter =
    R"(Does the step of a capsule (see `ampkit diagnose --help`) in two precisions, with the
same weights and batch, and holds them against each other op by op and layer by layer,
forward and backward: the first op that departs, and the layers that add most error. A
second FP32 run, which sums in another order, says what is only noise.

--against FILE.safetensors compares the results of the modules with a dump instead, such
as examples/04_compare_with_python makes of a PyTorch model; --dump writes one.

Examples:
  ampkit compare runs/fashion-resnet --against fp32
  ampkit compare runs/fashion-resnet --precision bf16-mixed --policy nlp --json
  ampkit compare runs/a --dump a.safetensors
  ampkit compare runs/b --against a.safetensors

Exit status: 0 nothing departs, 5 something does, and is printed; 2 wrong usage, 3 capsule
damaged or not one of ampkit train.)";

struct CompareArguments {
  CapsuleChoice choice;
  std::string precision;
  std::string against = "fp32";
  std::string policy = "pytorch";
  std::string dump;
  diagnose::DepartureBounds bounds;
  int layers = 10;
  bool json = false;
};

CompareJson number_of(double value) {
  return std::isfinite(value) ? CompareJson(value) : CompareJson(nullptr);
}

CompareJson json_of_deviation(const diagnose::Deviation& deviation) {
  return {
      {"relative", number_of(deviation.relative)},
      {"cosine", number_of(deviation.cosine)},
      {"ulp", number_of(deviation.ulp)},
      {"flushed", deviation.flushed},
      {"finite", deviation.finite}};
}

CompareJson json_of_op(const diagnose::OpComparison& op) {
  return {
      {"op", op.op},
      {"module", op.module},
      {"dtype", c10::toString(op.dtype)},
      {"output", json_of_deviation(op.output)},
      {"output_noise", number_of(op.output_noise)},
      {"gradient",
       op.gradient ? json_of_deviation(*op.gradient) : CompareJson()},
      {"gradient_noise", number_of(op.gradient_noise)},
      {"added", number_of(op.added)}};
}

bool print_comparison(
    const CompareArguments& arguments, const diagnose::Comparison& found) {
  const auto* departure = found.first_departure(arguments.bounds);
  if (!arguments.json) {
    std::cout << to_string(found, arguments.layers, arguments.bounds);
    return departure != nullptr;
  }
  CompareJson json{
      {"first_departure", departure ? json_of_op(*departure) : CompareJson()},
      {"layers", CompareJson::array()},
      {"ops", CompareJson::array()}};
  for (const auto& layer : found.layers()) {
    json["layers"].push_back(
        {{"module", layer.module},
         {"added", number_of(layer.added)},
         {"output", number_of(layer.output)},
         {"gradient", number_of(layer.gradient)}});
  }
  for (const auto& op : found.ops) {
    json["ops"].push_back(json_of_op(op));
  }
  std::cout << json.dump(2) << "\n";
  return departure != nullptr;
}

bool print_activations(
    const CompareArguments& arguments,
    const diagnose::ActivationComparison& found) {
  const auto* departure = found.first_departure(arguments.bounds.output);
  CompareJson json{
      {"first_departure", departure ? CompareJson(departure->name) : nullptr},
      {"modules", CompareJson::array()},
      {"left_out", found.left_out}};
  for (const auto& [name, deviation] : found.entries) {
    auto entry = json_of_deviation(deviation);
    entry["module"] = name;
    json["modules"].push_back(entry);
    if (!arguments.json) {
      std::cout << fmt::format(
          "{:<30} off by {:.3g} %, cosine {:.6f}{}\n",
          name,
          100 * deviation.relative,
          deviation.cosine,
          departure != nullptr && departure->name == name ? "  departs first"
                                                          : "");
    }
  }
  if (arguments.json) {
    std::cout << json.dump(2) << "\n";
  } else {
    for (const auto& line : found.left_out) {
      std::cout << "left out, " << line << "\n";
    }
  }
  return departure != nullptr;
}

io::StateDict read_activations(const std::string& path) {
  io::StateDict state;
  for (const auto& [name, tensor] : io::load_safetensors(path)) {
    state.set(name, tensor);
  }
  return state;
}

void write_activations(const io::StateDict& state, const std::string& path) {
  io::NamedTensors tensors;
  for (const auto& [name, value] : state.entries()) {
    tensors.emplace_back(name, std::get<at::Tensor>(value));
  }
  io::save_safetensors(path, tensors);
}

void run_compare(const CompareArguments& arguments) {
  auto run = zoo::open_capsule(
      choose_capsule(arguments.choice), zoo::capsule_pass_overrides());
  diagnose::CompareOptions options{
      .precision = Precision::parse(
          arguments.precision.empty() ? precision_name_of(run.capsule)
                                      : arguments.precision),
      .policy = policy_named(arguments.policy)};
  const auto pass = zoo::capsule_pass(run);
  const auto& module = *run.model.module;
  bool departs = false;
  if (!arguments.dump.empty()) {
    write_activations(
        diagnose::record_activations(module, pass, options), arguments.dump);
  } else if (arguments.against.ends_with(".safetensors")) {
    departs = print_activations(
        arguments,
        diagnose::compare_activations(
            diagnose::record_activations(module, pass, options),
            read_activations(arguments.against)));
  } else {
    options.against = Precision::parse(arguments.against);
    departs = print_comparison(
        arguments, diagnose::compare_precisions(module, pass, options));
  }
  std::cout << std::flush;
  if (departs) {
    throw CLI::RuntimeError(kFound);
  }
}

} // namespace

void add_compare_command(CLI::App& app) {
  const auto arguments = std::make_shared<CompareArguments>();
  auto* command = app.add_subcommand(
      "compare", "Hold a step in two precisions against each other");
  command->footer(kCompareFooter);
  add_capsule_options(*command, arguments->choice);
  command->add_option("--precision", arguments->precision, "That of the run")
      ->type_name("PRESET");
  auto* against =
      command
          ->add_option(
              "--against", arguments->against, "Another precision, or a dump")
          ->type_name("PRESET|FILE.safetensors")
          ->capture_default_str();
  command->add_option("--policy", arguments->policy, "What runs in which dtype")
      ->type_name("PRESET|FILE.toml")
      ->capture_default_str();
  command
      ->add_option(
          "--bound",
          arguments->bounds.output,
          "From which relative error of a result on it departs")
      ->capture_default_str()
      ->check(CLI::Range(1e-12, 1e6));
  command
      ->add_option(
          "--gradient-bound", arguments->bounds.gradient, "And of a gradient")
      ->capture_default_str()
      ->check(CLI::Range(1e-12, 1e6));
  command->add_option("--layers", arguments->layers, "How many are listed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option(
          "--dump", arguments->dump, "Write the results of the modules instead")
      ->type_name("FILE.safetensors")
      ->excludes(against);
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->callback([arguments] { run_compare(*arguments); });
}

} // namespace ampkit::app
