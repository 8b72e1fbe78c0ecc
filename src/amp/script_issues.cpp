#include <ampkit/amp/script_issues.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include <c10/util/StringUtil.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

namespace ampkit {
namespace {

using torch::jit::Node;
using torch::jit::Value;

struct IssueKind {
  ScriptIssue issue;
  const char* name;
  bool refused;
  const char* what;
  const char* remedy;
};

constexpr std::array<IssueKind, 9> kKinds{{
    {ScriptIssue::no_parameters,
     "no_parameters",
     true,
     "the module has no parameters",
     "save it before torch.jit.freeze()"},
    {ScriptIssue::no_gradients,
     "no_gradients",
     true,
     "no parameter requires a gradient",
     "call requires_grad_(True) before scripting"},
    {ScriptIssue::inference_only,
     "inference_only",
     true,
     "quantized or prepacked ops have no gradient",
     "save the module before quantizing or optimizing it"},
    {ScriptIssue::own_autocast,
     "own_autocast",
     true,
     "an autocast block inside the script is not applied reliably",
     "remove it, and put an ampkit::Autocast around the call"},
    {ScriptIssue::cast_weights,
     "cast_weights",
     true,
     "weights are cast to 16 bits inside the graph, as tracing under autocast "
     "does",
     "trace outside of autocast"},
    {ScriptIssue::forks,
     "forks",
     true,
     "torch.jit.fork() runs on threads that optimize their graphs",
     "call the parts one after the other"},
    {ScriptIssue::fixed_mode,
     "fixed_mode",
     false,
     "tracing fixed the mode of these ops; train() and eval() have no effect "
     "on "
     "them",
     "use torch.jit.script()"},
    {ScriptIssue::constant_tensors,
     "constant_tensors",
     false,
     "floating-point tensors are constants of the graph and are not trained",
     "make them parameters or buffers"},
    {ScriptIssue::constant_dtype,
     "constant_dtype",
     false,
     "casts to a fixed dtype, which an Autocast does not change",
     "use the dtype of another tensor"},
}};

const IssueKind& kind_of(ScriptIssue issue) {
  return kKinds.at(static_cast<size_t>(issue));
}

// " at net.py:12": in the Python source, not in what torch.jit.save() wrote.
std::string place_of(const Node& node) {
  const auto range = node.sourceRange().findSourceRangeThatGenerated().value_or(
      node.sourceRange());
  if (const auto place = range.file_line_col()) {
    const auto& [file, line, column] = *place;
    if (!file.empty()) {
      return c10::str(" at ", file.substr(file.rfind('/') + 1), ":", line);
    }
  }
  // The beginning of a block has no place, but the object that it enters.
  return node.kind() == c10::prim::Enter ? place_of(*node.input(0)->node())
                                         : "";
}

std::string describe(const Node& node) {
  return node.kind().toQualString() + place_of(node);
}

std::optional<c10::IValue> constant_of(const Node& node, const char* name) {
  return node.maybeSchema() != nullptr && node.hasNamedInput(name)
             ? torch::jit::toIValue(node.namedInput(name))
             : std::nullopt;
}

bool is_zero(const std::optional<c10::IValue>& value) {
  return value && value->isDouble() && value->toDouble() == 0;
}

bool is_none(const std::optional<c10::IValue>& value) {
  return value && value->isNone();
}

// Whether the mode of a dropout or normalisation is a constant that matters.
bool fixes_mode(const Node& node) {
  const std::string_view op = node.kind().toQualString();
  if (op.starts_with("aten::batch_norm") ||
      op.starts_with("aten::instance_norm")) {
    return (constant_of(node, "training") ||
            constant_of(node, "use_input_stats")) &&
           !is_none(constant_of(node, "running_mean"));
  }
  if (op == "aten::scaled_dot_product_attention") {
    const auto p = constant_of(node, "dropout_p");
    return p && !is_zero(p);
  }
  if (op.find("dropout") != std::string_view::npos) {
    return constant_of(node, "train") && !is_zero(constant_of(node, "p"));
  }
  const auto dropout = constant_of(node, "dropout"); // of recurrent layers
  return dropout && !is_zero(dropout) && constant_of(node, "train");
}

// The constant dtype that a cast converts to.
std::optional<c10::ScalarType> cast_to(const Node& node) {
  if (node.kind() != c10::aten::to) {
    return std::nullopt;
  }
  const auto dtype = constant_of(node, "dtype");
  return dtype && dtype->isInt()
             ? std::optional(static_cast<c10::ScalarType>(dtype->toInt()))
             : std::nullopt;
}

bool is_attribute(const Value& value) {
  return value.node()->kind() == c10::prim::GetAttr;
}

std::optional<ScriptIssue> issue_of_cast(const Node& node) {
  const auto dtype = cast_to(node);
  if (!dtype) {
    return std::nullopt;
  }
  const bool narrow = *dtype == at::kHalf || *dtype == at::kBFloat16;
  if (narrow && is_attribute(*node.input(0))) {
    return ScriptIssue::cast_weights;
  }
  return narrow || *dtype == at::kDouble
             ? std::optional(ScriptIssue::constant_dtype)
             : std::nullopt;
}

bool is_constant_tensor(const Node& node) {
  if (node.kind() != c10::prim::Constant) {
    return false;
  }
  const auto value = torch::jit::toIValue(node.output());
  return value && value->isTensor() && value->toTensor().defined() &&
         value->toTensor().is_floating_point() && value->toTensor().dim() > 0;
}

bool enters_autocast(const Node& node) {
  return node.kind() == c10::prim::Enter &&
         node.input(0)->type()->repr_str().find("autocast") !=
             std::string::npos;
}

bool is_inference_only(const Node& node) {
  const std::string_view space = node.kind().ns().toUnqualString();
  const std::string_view name = node.kind().toUnqualString();
  return space.find("quantized") != std::string_view::npos ||
         space.find("prepacked") != std::string_view::npos ||
         space.find("onednn") != std::string_view::npos ||
         name.starts_with("quantize_per_") || name.starts_with("MKLDNN");
}

std::optional<ScriptIssue> issue_of(const Node& node) {
  if (is_inference_only(node)) {
    return ScriptIssue::inference_only;
  }
  if (enters_autocast(node)) {
    return ScriptIssue::own_autocast;
  }
  if (node.kind() == c10::prim::fork) {
    return ScriptIssue::forks;
  }
  if (fixes_mode(node)) {
    return ScriptIssue::fixed_mode;
  }
  if (is_constant_tensor(node)) {
    return ScriptIssue::constant_tensors;
  }
  return issue_of_cast(node);
}

using Places = std::map<ScriptIssue, std::vector<std::string>>;

void search(const torch::jit::Block& block, Places& places) {
  for (const Node* node : block.nodes()) {
    if (const auto issue = issue_of(*node)) {
      places[*issue].push_back(describe(*node));
    }
    for (const torch::jit::Block* inner : node->blocks()) {
      search(*inner, places);
    }
  }
}

void search_parameters(const torch::jit::Module& module, Places& places) {
  size_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    ++count;
    if (parameter.requires_grad()) {
      return;
    }
  }
  places[count == 0 ? ScriptIssue::no_parameters : ScriptIssue::no_gradients];
}

ScriptFinding finding(
    ScriptIssue issue, const std::vector<std::string>& places) {
  constexpr size_t kShown = 3;
  const IssueKind& kind = kind_of(issue);
  std::ostringstream out;
  out << kind.what;
  for (size_t i = 0; i < std::min(places.size(), kShown); ++i) {
    out << (i == 0 ? " (" : ", ") << places[i];
  }
  if (places.size() > kShown) {
    out << ", and " << places.size() - kShown << " more";
  }
  out << (places.empty() ? "; " : "); ") << kind.remedy;
  return {issue, kind.refused, out.str()};
}

} // namespace

std::string to_string(ScriptIssue issue) {
  return kind_of(issue).name;
}

std::vector<ScriptFinding> find_script_issues(
    const torch::jit::Module& module) {
  Places places;
  search_parameters(module, places);
  for (const auto& method : module.get_methods()) {
    if (!method.name().starts_with("__")) { // how it is saved and read
      const auto graph = method.graph()->copy();
      torch::jit::Inline(*graph);
      search(*graph->block(), places);
    }
  }
  std::vector<ScriptFinding> findings;
  for (const auto& [issue, nodes] : places) {
    findings.push_back(finding(issue, nodes));
  }
  return findings;
}

} // namespace ampkit
