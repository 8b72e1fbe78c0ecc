#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/amp/precision_policy.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"
#include "network.h"
#include "ops_output.h"
#include "policy_choice.h"

namespace ampkit::app {
namespace {

constexpr const char* kFooter =
    R"(What a region of ampkit::Autocast does with each op, and why. Rules:
  lower-precision  casts its inputs to the 16-bit dtype of the region
  float32          casts 16-bit inputs to float32
  promote          casts inputs of different dtypes to the widest
  inputs           runs in the dtypes it is given (what is not listed, too)
  refuse           is an error, because no 16-bit run of it is safe

Policies: pytorch (LibTorch's own lists), strict (norms, softmax, losses, exp,
log, pow and long sums in float32 on every device), cv, nlp and speech (pytorch,
and what these tasks need in float32), or a TOML file of your own.

--tree shows a network instead: a file of torch.jit.save, the configuration of a
run (with its precision.policy, unless --policy is given), or one by name.

In a pipe each line is one op or module, its columns separated by tabs.

Examples:
  ampkit ops
  ampkit ops --policy strict --device cuda --rule float32
  ampkit ops --policy my.toml --op softmax
  ampkit ops --policy nlp --tree gpt
  ampkit ops --policy nlp --tree model.pt --json)";

struct Arguments {
  std::string policy;
  std::string device = "cpu";
  std::string op;
  std::string rule;
  std::string tree;
  bool json = false;
};

const std::vector<std::string>& rule_names() {
  static const std::vector<std::string> names{
      "inputs", "lower-precision", "float32", "promote", "refuse"};
  return names;
}

std::vector<OpPolicyEntry> selected_ops(
    const Arguments& arguments,
    const PrecisionPolicy& policy,
    c10::DeviceType device) {
  auto ops = arguments.op.empty()
                 ? policy.ops.entries(device)
                 : std::vector{policy.ops.entry(arguments.op, device)};
  if (!arguments.rule.empty()) {
    const auto rule = parse_op_rule(arguments.rule);
    std::erase_if(ops, [&](const auto& entry) { return entry.rule != rule; });
  }
  return ops;
}

void print_ops(const Arguments& arguments) {
  const auto device = arguments.device == "cuda" ? at::kCUDA : at::kCPU;
  std::optional<Network> network;
  auto name = arguments.policy;
  if (!arguments.tree.empty()) {
    network.emplace(arguments.tree);
    name = name.empty() ? network->policy() : name;
  }
  name = name.empty() ? "pytorch" : name;
  const auto policy = policy_named(name);
  const OutputHead head{
      .policy = name, .device = arguments.device, .network = arguments.tree};
  const auto style = arguments.json ? OutputStyle::json : terminal_or_plain();
  if (network) {
    print_network(std::cout, style, head, network->report(policy, device));
  } else {
    print_policy(
        std::cout,
        style,
        head,
        selected_ops(arguments, policy, device),
        policy);
  }
}

std::string words_and(const std::vector<std::string>& words, const char* file) {
  return fmt::format("{{{}}}|{}", fmt::join(words, ","), file);
}

void add_options(CLI::App& command, Arguments& arguments) {
  command
      .add_option(
          "--policy",
          arguments.policy,
          "Which policy; pytorch, or that of the configuration")
      ->type_name(words_and(PrecisionPolicy::preset_names(), "FILE.toml"));
  command
      .add_option("--device", arguments.device, "Device type of the tensors")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  auto* op = command.add_option(
      "--op", arguments.op, "One op: mm, softmax, softmax.int, mylib::scan");
  op->type_name("NAME");
  auto* rule =
      command.add_option("--rule", arguments.rule, "Only ops with this rule")
          ->check(CLI::IsMember(rule_names()));
  command
      .add_option(
          "--tree",
          arguments.tree,
          "The modules of a network instead of the ops")
      ->type_name(words_and(Network::names(), "FILE"))
      ->excludes(op)
      ->excludes(rule);
  command.add_flag("--json", arguments.json, "Print JSON instead of text");
}

} // namespace

void add_ops_command(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "ops", "Say which op or layer runs in which dtype, and why");
  command->footer(kFooter);
  add_options(*command, *arguments);
  command->callback([arguments] { print_ops(*arguments); });
}

} // namespace ampkit::app
