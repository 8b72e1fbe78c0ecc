#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>
#include <utility>
#include <vector>

#include <ampkit/amp/precision_policy.h>

#include "amp/policy_names.h"
#include "io/atomic_file.h"

namespace ampkit {
namespace {

// A TOML basic string.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20 || code == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04X", code);
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string key(const std::string& name) {
  const bool bare = !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
           c == '-';
  });
  return bare ? name : quoted(name);
}

// One rule: its name, and its entries with what TOML calls them, as TOML. The
// first one is what the short form gives.
struct Rule {
  std::string name;
  std::vector<std::pair<std::string, std::string>> entries;
};

Rule rule_of(const OpPolicy::Edit& edit) {
  Rule rule{edit.op, {{"rule", quoted(to_string(edit.rule))}}};
  if (edit.device.has_value()) {
    rule.entries.emplace_back(
        "device", *edit.device == at::kCPU ? "\"cpu\"" : "\"cuda\"");
  }
  if (!edit.reason.empty()) {
    rule.entries.emplace_back("reason", quoted(edit.reason));
  }
  return rule;
}

Rule rule_of(const ModulePolicy::Rule& from) {
  Rule rule{from.pattern, {{"dtype", quoted(module_dtype_name(from.dtype))}}};
  if (from.optional) {
    rule.entries.emplace_back("optional", "true");
  }
  if (!from.reason.empty()) {
    rule.entries.emplace_back("reason", quoted(from.reason));
  }
  return rule;
}

template <class From>
std::vector<Rule> rules_of(const std::vector<From>& from) {
  std::vector<Rule> rules;
  for (const From& each : from) {
    rules.push_back(rule_of(each));
  }
  return rules;
}

// A table has each name once.
bool fits_table(const std::vector<Rule>& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) {
    names.push_back(rule.name);
  }
  std::ranges::sort(names);
  return std::ranges::adjacent_find(names) == names.end();
}

void write_table(
    std::ostream& out,
    const std::string& section,
    const std::vector<Rule>& rules) {
  out << "\n[" << section << "]\n";
  for (const Rule& rule : rules) {
    out << key(rule.name) << " = ";
    if (rule.entries.size() == 1) {
      out << rule.entries.front().second << "\n";
      continue;
    }
    const char* before = "{ ";
    for (const auto& [name, value] : rule.entries) {
      out << before << name << " = " << value;
      before = ", ";
    }
    out << " }\n";
  }
}

void write_list(
    std::ostream& out,
    const std::string& section,
    const std::string& name_key,
    const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    out << "\n[[" << section << "]]\n"
        << name_key << " = " << quoted(rule.name) << "\n";
    for (const auto& [name, value] : rule.entries) {
      out << name << " = " << value << "\n";
    }
  }
}

void write_rules(
    std::ostream& out,
    const std::string& section,
    const std::string& name_key,
    const std::vector<Rule>& rules) {
  if (rules.empty()) {
    return;
  }
  if (fits_table(rules)) {
    write_table(out, section, rules);
  } else {
    write_list(out, section, name_key, rules);
  }
}

} // namespace

std::string to_toml(const PrecisionPolicy& policy) {
  std::ostringstream out;
  out << "[ops]\nbase = " << quoted(policy.ops.base()) << "\n";
  write_rules(out, "ops.rules", "op", rules_of(policy.ops.edits()));
  write_rules(
      out, "modules.rules", "pattern", rules_of(policy.modules.rules()));
  return out.str();
}

void save_precision_policy(
    const std::string& path, const PrecisionPolicy& policy) {
  io::AtomicFile file(path);
  file.write_at(0, to_toml(policy));
  file.commit();
}

} // namespace ampkit
