#include "ops_output.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace ampkit::app {
namespace {

using Json = nlohmann::ordered_json;

struct RuleHelp {
  OpRule rule;
  const char* meaning;
};

constexpr std::array kRules{
    RuleHelp{
        OpRule::lower_precision, "inputs are cast to the region's 16 bits"},
    RuleHelp{OpRule::float32, "16-bit inputs are cast to float32"},
    RuleHelp{OpRule::promote, "inputs are cast to the widest dtype among them"},
    RuleHelp{OpRule::inputs, "inputs are left as they are"},
    RuleHelp{OpRule::refuse, "an error in a region"}};

size_t terminal_width() {
  constexpr size_t kDefault = 80;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known && size.ws_col > 0 ? size.ws_col : kDefault;
}

// `text` from column `indent` on, which the cursor has reached.
std::string wrapped(const std::string& text, size_t indent) {
  constexpr size_t kNarrow = 20;
  const auto width = std::max(terminal_width(), indent + kNarrow);
  std::istringstream words(text);
  std::string out;
  auto column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string with_separators(int64_t number) {
  auto text = std::to_string(number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

std::string dtype_text(c10::ScalarType dtype) {
  return dtype == at::kFloat  ? "float32"
         : dtype == at::kHalf ? "float16"
                              : "bfloat16";
}

Json rule_json(const ModulePolicy::Rule& rule) {
  return {
      {"pattern", rule.pattern},
      {"dtype", dtype_text(rule.dtype)},
      {"optional", rule.optional},
      {"reason", rule.reason}};
}

Json policy_json(
    const OutputHead& head,
    const std::vector<OpPolicyEntry>& ops,
    const PrecisionPolicy& policy) {
  Json json{
      {"policy", head.policy},
      {"device", head.device},
      {"ops", Json::array()},
      {"modules", Json::array()}};
  for (const auto& entry : ops) {
    json["ops"].push_back(
        {{"op", entry.op},
         {"rule", to_string(entry.rule)},
         {"reason", entry.reason}});
  }
  for (const auto& rule : policy.modules.rules()) {
    json["modules"].push_back(rule_json(rule));
  }
  return json;
}

Json network_json(const OutputHead& head, const NetworkReport& report) {
  Json json{
      {"policy", head.policy},
      {"device", head.device},
      {"network", head.network},
      {"modules", Json::array()},
      {"rules", Json::array()}};
  for (const auto& row : report.modules) {
    json["modules"].push_back(
        {{"path", row.path},
         {"type", row.type},
         {"runs_in", row.runs_in},
         {"parameters", row.parameters},
         {"by", row.by},
         {"reason", row.reason}});
  }
  for (const auto& use : report.rules) {
    auto rule = rule_json(use.rule);
    rule["modules"] = use.modules;
    json["rules"].push_back(std::move(rule));
  }
  return json;
}

void print_rule_group(
    std::ostream& out,
    const RuleHelp& help,
    const std::vector<OpPolicyEntry>& ops,
    size_t name_width) {
  const auto of_rule = [&](const auto& entry) {
    return entry.rule == help.rule;
  };
  if (std::ranges::none_of(ops, of_rule)) {
    return;
  }
  out << fmt::format(
      "\n{} ({}): {}\n",
      to_string(help.rule),
      std::ranges::count_if(ops, of_rule),
      help.meaning);
  for (const auto& entry : ops) {
    if (of_rule(entry)) {
      out << fmt::format("  {:<{}}  ", entry.op, name_width)
          << wrapped(entry.reason, name_width + 4) << "\n";
    }
  }
}

void print_ops_table(
    std::ostream& out,
    const OutputHead& head,
    const std::vector<OpPolicyEntry>& ops,
    const PrecisionPolicy& policy) {
  out << fmt::format("policy {} on {}\n", head.policy, head.device);
  size_t width = 0;
  for (const auto& entry : ops) {
    width = std::max(width, entry.op.size());
  }
  for (const auto& help : kRules) {
    print_rule_group(out, help, ops, width);
  }
  if (ops.empty()) {
    out << "\nno op has that rule\n";
  }
  const auto count = policy.modules.rules().size();
  if (count > 0) {
    out << fmt::format(
        "\n{} rules for modules; --tree NETWORK shows what they do there\n",
        count);
  }
}

// Each op and pattern that decided something, once.
void print_reasons(
    std::ostream& out, const std::vector<ModuleRow>& rows, size_t width) {
  std::vector<std::string> told;
  out << "\n";
  for (const auto& row : rows) {
    if (row.by.empty() || std::ranges::count(told, row.by) > 0) {
      continue;
    }
    told.push_back(row.by);
    out << fmt::format("{:<{}}  ", row.by, width)
        << wrapped(row.reason, width + 2) << "\n";
  }
}

// Which lines of the policy did something here, and which found nothing.
void print_rule_uses(
    std::ostream& out, const std::vector<ModulePolicy::RuleUse>& rules) {
  if (rules.empty()) {
    return;
  }
  out << "\n";
  std::string idle;
  for (const auto& use : rules) {
    const auto pattern = "'" + use.rule.pattern + "'";
    if (use.modules == 0) {
      idle += (idle.empty() ? "" : ", ") + pattern;
    } else {
      out << fmt::format(
          "{} = {}: {} of the modules\n",
          pattern,
          dtype_text(use.rule.dtype),
          use.modules);
    }
  }
  if (!idle.empty()) {
    constexpr std::string_view kIdle = "without effect here: ";
    out << kIdle << wrapped(idle, kIdle.size()) << "\n";
  }
}

void print_tree(
    std::ostream& out, const OutputHead& head, const NetworkReport& report) {
  out << fmt::format(
      "{} under policy {} on {}\n\n", head.network, head.policy, head.device);
  const auto shown = [](const std::string& path) {
    return path.empty() ? "(itself)" : path;
  };
  size_t path = 6;
  size_t type = 4;
  size_t by = 2;
  for (const auto& row : report.modules) {
    path = std::max(path, shown(row.path).size());
    type = std::max(type, row.type.size());
    by = std::max(by, row.by.size());
  }
  const auto print_line = [&](auto a, auto b, auto c, auto d, auto e) {
    out << fmt::format(
        "{:<{}}  {:<{}}  {:>11}  {:<8}  {}\n", a, path, b, type, c, d, e);
  };
  print_line("module", "type", "parameters", "runs in", "by");
  for (const auto& row : report.modules) {
    print_line(
        shown(row.path),
        row.type,
        with_separators(row.parameters),
        row.runs_in,
        row.by);
  }
  print_reasons(out, report.modules, by);
  print_rule_uses(out, report.rules);
}

} // namespace

OutputStyle terminal_or_plain() {
  return isatty(STDOUT_FILENO) == 1 ? OutputStyle::terminal
                                    : OutputStyle::plain;
}

void print_policy(
    std::ostream& out,
    OutputStyle style,
    const OutputHead& head,
    const std::vector<OpPolicyEntry>& ops,
    const PrecisionPolicy& policy) {
  if (style == OutputStyle::json) {
    out << policy_json(head, ops, policy).dump(2) << "\n";
  } else if (style == OutputStyle::terminal) {
    print_ops_table(out, head, ops, policy);
  } else {
    for (const auto& entry : ops) {
      out << fmt::format(
          "{}\t{}\t{}\n", entry.op, to_string(entry.rule), entry.reason);
    }
  }
}

void print_network(
    std::ostream& out,
    OutputStyle style,
    const OutputHead& head,
    const NetworkReport& report) {
  if (style == OutputStyle::json) {
    out << network_json(head, report).dump(2) << "\n";
  } else if (style == OutputStyle::terminal) {
    print_tree(out, head, report);
  } else {
    for (const auto& row : report.modules) {
      out << fmt::format(
          "{}\t{}\t{}\t{}\t{}\t{}\n",
          row.path,
          row.type,
          row.runs_in,
          row.parameters,
          row.by,
          row.reason);
    }
  }
}

} // namespace ampkit::app
