#include "network.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include <ampkit/zoo/models/gpt.h>
#include <ampkit/zoo/models/model.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/trainer.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "command.h"

namespace ampkit::app {

struct Network::Modules {
  std::variant<std::shared_ptr<torch::nn::Module>, torch::jit::Module> root;
};

namespace {

// The op that a module of LibTorch's runs its parameters through.
constexpr std::array<std::pair<std::string_view, const char*>, 20> kOps{{
    {"Linear", "linear"},
    {"Conv1d", "conv1d"},
    {"Conv2d", "conv2d"},
    {"Conv3d", "conv3d"},
    {"ConvTranspose1d", "conv_transpose1d"},
    {"ConvTranspose2d", "conv_transpose2d.input"},
    {"ConvTranspose3d", "conv_transpose3d.input"},
    {"BatchNorm1d", "batch_norm"},
    {"BatchNorm2d", "batch_norm"},
    {"BatchNorm3d", "batch_norm"},
    {"LayerNorm", "layer_norm"},
    {"GroupNorm", "group_norm"},
    {"InstanceNorm1d", "instance_norm"},
    {"InstanceNorm2d", "instance_norm"},
    {"InstanceNorm3d", "instance_norm"},
    {"RMSNorm", "rms_norm"},
    {"Embedding", "embedding"},
    {"EmbeddingBag", "embedding_bag"},
    {"PReLU", "prelu"},
    {"Bilinear", "bilinear"},
}};

std::optional<OpPolicyEntry> op_of(
    const std::string& type, const OpPolicy& ops, c10::DeviceType device) {
  for (const auto& [name, op] : kOps) {
    if (name == type) {
      return ops.entry(op, device);
    }
  }
  return std::nullopt;
}

std::string dtype_name(c10::ScalarType dtype) {
  return dtype == at::kFloat  ? "float32"
         : dtype == at::kHalf ? "float16"
                              : "bfloat16";
}

// "torch::nn::BatchNorm2dImpl" is a BatchNorm2d.
std::string short_type(std::string name) {
  name = name.substr(name.rfind(':') + 1);
  return name.ends_with("Impl") ? name.substr(0, name.size() - 4) : name;
}

using Types = std::map<std::string, std::string>;

Types types_of(const torch::nn::Module& root) {
  Types types{{"", short_type(root.name())}};
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    types[item.key()] = short_type(item.value()->name());
  }
  return types;
}

Types types_of(const torch::jit::Module& root) {
  Types types;
  for (const auto& item : root.named_modules()) {
    const auto name = item.value.type()->name();
    types[item.name] = name.has_value() ? name->name() : "";
  }
  return types;
}

const ModulePolicy::Rule* rule_of(
    const ModulePolicy& policy, const std::string& pattern) {
  const auto& rules = policy.rules();
  const auto found =
      std::find_if(rules.rbegin(), rules.rend(), [&](const auto& rule) {
        return rule.pattern == pattern;
      });
  return found == rules.rend() ? nullptr : &*found;
}

// A module rule bends low precision, and the ops without a rule; what an op
// policy has in float32 stays there.
void decide(
    ModuleRow& row,
    const ModulePolicy::Rule* rule,
    const std::optional<OpPolicyEntry>& op) {
  const bool lower = !op || op->rule == OpRule::lower_precision;
  const bool in_float = op && op->rule == OpRule::float32;
  if (rule != nullptr && (lower || (rule->dtype == at::kFloat && !in_float))) {
    row.runs_in = dtype_name(rule->dtype);
    row.by = "'" + rule->pattern + "'";
    row.reason = rule->reason;
    return;
  }
  if (!op) {
    row.runs_in = "by op";
    row.reason = "no module of LibTorch's: each of its ops has its own rule";
    return;
  }
  row.runs_in = in_float ? "float32" : lower ? "16 bits" : "inputs'";
  row.by = op->op;
  row.reason = op->reason;
}

template <class Module>
NetworkReport report_of(
    const Module& root, const PrecisionPolicy& policy, c10::DeviceType device) {
  const auto bound = policy.modules.bind(root);
  const auto types = types_of(root);
  NetworkReport report{.rules = policy.modules.uses(bound)};
  for (const auto& entry : bound.entries()) {
    ModuleRow row{
        .path = entry.path,
        .type = types.at(entry.path),
        .parameters = entry.parameters};
    const bool decided = entry.dtype != at::ScalarType::Undefined;
    decide(
        row,
        decided ? rule_of(policy.modules, entry.pattern) : nullptr,
        op_of(row.type, policy.ops, device));
    report.modules.push_back(std::move(row));
  }
  return report;
}

torch::jit::Module load_script(const std::string& path) {
  try {
    return torch::jit::load(path, torch::kCPU);
  } catch (const c10::Error& error) {
    const auto text = error.msg();
    throw UsageError(fmt::format(
        "{}: not a file of torch.jit.save (a network in TorchScript): {}",
        path,
        text.substr(0, text.find('\n'))));
  }
}

std::shared_ptr<torch::nn::Module> zoo_network(const std::string& name) {
  if (name == "gpt") {
    return zoo::Gpt().ptr();
  }
  const auto& known = zoo::model_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return zoo::make_model(zoo::ModelOptions{.name = name}).module;
  }
  throw UsageError(fmt::format(
      "ops: --tree: expected a TorchScript file (.pt, .pth), a configuration "
      "(.toml) or one of {}, got '{}'",
      fmt::join(Network::names(), ", "),
      name));
}

} // namespace

Network::Network(const std::string& name)
    : modules_(std::make_unique<Modules>()) {
  if (name.ends_with(".pt") || name.ends_with(".pth")) {
    modules_->root = load_script(name);
  } else if (name.ends_with(".toml")) {
    const auto config = zoo::load_config(name);
    policy_ = config.precision.policy;
    modules_->root =
        zoo::make_model(config, zoo::open_data(config.data)).module;
  } else {
    modules_->root = zoo_network(name);
  }
}

Network::~Network() = default;

NetworkReport Network::report(
    const PrecisionPolicy& policy, c10::DeviceType device) const {
  if (const auto* script = std::get_if<torch::jit::Module>(&modules_->root)) {
    return report_of(*script, policy, device);
  }
  const auto& root =
      std::get<std::shared_ptr<torch::nn::Module>>(modules_->root);
  return report_of(*root, policy, device);
}

std::vector<std::string> Network::names() {
  auto names = zoo::model_names();
  names.emplace_back("gpt");
  return names;
}

} // namespace ampkit::app
