#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include <ampkit/amp/precision_policy.h>
#include <ampkit/io/nearest_name.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <toml++/toml.h>

#include "amp/policy_names.h"

namespace ampkit {
namespace {

using Names = std::vector<std::string>;

std::string printed(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return "'" + text->get() + "'";
  }
  if (node.is_table()) {
    return "a table";
  }
  if (node.is_array()) {
    return "a list";
  }
  std::ostringstream out;
  node.visit([&out](const auto& value) { out << value; });
  return out.str();
}

std::string suggestion(const std::string& typed, const Names& known) {
  const auto guess = nearest_name(typed, known);
  return guess.empty() ? "" : ", did you mean '" + guess + "'?";
}

// A value, with what messages call it.
struct Item {
  std::string name; // "softmax"
  std::string path; // "ops.rules.softmax"
  const toml::node* node = nullptr;
  toml::source_position place;
};

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  PrecisionPolicy read(const toml::table& root) {
    PrecisionPolicy policy;
    const auto items = items_of(root, "", Names{"preset", "ops", "modules"});
    for (const Item& item : items) { // before what changes it
      if (item.name == "preset") {
        policy = read_preset(item);
        has_preset_ = true;
      }
    }
    for (const Item& item : items) {
      if (item.name == "ops") {
        read_ops(item, policy);
      } else if (item.name == "modules") {
        read_modules(item, policy);
      }
    }
    return policy;
  }

 private:
  template <class... Parts>
  void check(bool condition, const Item& item, const Parts&... parts) const {
    TORCH_CHECK_VALUE(
        condition,
        source_,
        ":",
        item.place.line,
        ": ",
        item.path,
        ": ",
        parts...);
  }

  // In the order of the file; toml++ sorts by name.
  std::vector<Item> items_of(
      const toml::table& table,
      const std::string& prefix,
      const std::optional<Names>& known = std::nullopt) const {
    std::vector<Item> items;
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      items.push_back(
          {name,
           prefix.empty() ? name : c10::str(prefix, ".", name),
           &node,
           key.source().begin});
      check(
          !known || std::ranges::count(*known, name) > 0,
          items.back(),
          "unknown key",
          known ? suggestion(name, *known) : "",
          "; expected ",
          known ? c10::Join(" or ", *known) : "");
    }
    std::ranges::sort(items, [](const Item& a, const Item& b) {
      return std::pair(a.place.line, a.place.column) <
             std::pair(b.place.line, b.place.column);
    });
    return items;
  }

  const toml::table& table_of(const Item& item) const {
    check(
        item.node->is_table(),
        item,
        "expected a table, found ",
        printed(*item.node));
    return *item.node->as_table();
  }

  // One of `names`; returns which.
  size_t choice(const Item& item, const Names& names) const {
    const auto typed = item.node->value_exact<std::string>().value_or("");
    const auto found = std::ranges::find(names, typed);
    check(
        item.node->is_string() && found != names.end(),
        item,
        "expected one of ",
        c10::Join(", ", names),
        ", found ",
        printed(*item.node),
        suggestion(typed, names));
    return static_cast<size_t>(found - names.begin());
  }

  std::string text(const Item& item) const {
    check(
        item.node->is_string(),
        item,
        "expected a text, found ",
        printed(*item.node));
    return item.node->as_string()->get();
  }

  PrecisionPolicy read_preset(const Item& item) const {
    const auto& names = PrecisionPolicy::preset_names();
    return PrecisionPolicy::preset(names[choice(item, names)]);
  }

  void read_ops(const Item& item, PrecisionPolicy& policy) const {
    const auto items =
        items_of(table_of(item), item.path, Names{"base", "rules"});
    for (const Item& each : items) {
      if (each.name == "base") {
        check(
            !has_preset_, each, "a preset has its own; leave one of them out");
        const Names names{"pytorch", "strict"};
        policy.ops = OpPolicy::parse(names[choice(each, names)]);
      }
    }
    for (const Item& each : items) {
      if (each.name == "rules") {
        for_each_rule(each, "op", "rule", [&](const auto&... rule) {
          read_op_rule(policy.ops, rule...);
        });
      }
    }
  }

  void read_modules(const Item& item, PrecisionPolicy& policy) const {
    const auto items = items_of(table_of(item), item.path, Names{"rules"});
    for (const Item& each : items) {
      for_each_rule(each, "pattern", "dtype", [&](const auto&... rule) {
        read_module_rule(policy.modules, rule...);
      });
    }
  }

  // Rules are a table, NAME = VALUE or NAME = { KEY = VALUE, ... }, or a list
  // of { NAME_KEY = NAME, KEY = VALUE, ... }, which may repeat a name. `visit`
  // gets the rule itself, its name and its entries.
  template <class Visit>
  void for_each_rule(
      const Item& rules,
      const std::string& name_key,
      const std::string& key,
      const Visit& visit) const {
    if (const auto* list = rules.node->as_array()) {
      for (const toml::node& node : *list) {
        const Item item{"", rules.path, &node, node.source().begin};
        auto entries = items_of(table_of(item), rules.path);
        const auto name = std::ranges::find(entries, name_key, &Item::name);
        check(name != entries.end(), item, "a rule has no ", name_key);
        const auto value = text(*name);
        const Item named{value, rules.path + "." + value, nullptr, name->place};
        entries.erase(name);
        visit(named, entries);
      }
      return;
    }
    for (const Item& item : items_of(table_of(rules), rules.path)) {
      if (item.node->is_table()) {
        visit(item, items_of(table_of(item), item.path));
      } else {
        visit(item, std::vector<Item>{{key, item.path, item.node, item.place}});
      }
    }
  }

  void unknown_entry(
      const Item& rule, const Item& entry, const Names& known) const {
    const auto guess = suggestion(entry.name, known);
    // softmax.int = "float32" is, to TOML, a table softmax with an entry int.
    const bool dotted = guess.empty() && rule.node != nullptr &&
                        !rule.node->as_table()->is_inline();
    check(
        false,
        entry,
        "unknown key",
        guess,
        "; expected ",
        c10::Join(" or ", known),
        dotted ? "; a name with a dot needs quotes: \"" + rule.name + "." +
                     entry.name + "\""
               : "");
  }

  void read_op_rule(
      OpPolicy& ops, const Item& item, const std::vector<Item>& entries) const {
    std::optional<OpRule> rule;
    std::optional<c10::DeviceType> device;
    std::string reason;
    for (const Item& entry : entries) {
      if (entry.name == "rule") {
        choice(entry, op_rule_names());
        rule = parse_op_rule(text(entry));
      } else if (entry.name == "device") {
        device = choice(entry, {"cpu", "cuda"}) == 0 ? at::kCPU : at::kCUDA;
      } else if (entry.name == "reason") {
        reason = text(entry);
      } else {
        unknown_entry(item, entry, {"rule", "device", "reason"});
      }
    }
    check(rule.has_value(), item, "has no rule");
    with_place(item, [&] { ops.set(item.name, *rule, reason, device); });
  }

  void read_module_rule(
      ModulePolicy& modules,
      const Item& item,
      const std::vector<Item>& entries) const {
    ModulePolicy::Rule rule{
        .pattern = item.name, .dtype = at::ScalarType::Undefined};
    for (const Item& entry : entries) {
      if (entry.name == "dtype") {
        choice(entry, module_dtype_names());
        rule.dtype = parse_module_dtype(text(entry));
      } else if (entry.name == "reason") {
        rule.reason = text(entry);
      } else if (entry.name == "optional") {
        const auto value = entry.node->value_exact<bool>();
        check(
            value.has_value(),
            entry,
            "expected true or false, found ",
            printed(*entry.node));
        rule.optional = value.value_or(false);
      } else {
        unknown_entry(item, entry, {"dtype", "reason", "optional"});
      }
    }
    check(rule.dtype != at::ScalarType::Undefined, item, "has no dtype");
    with_place(item, [&] { modules.set(rule); });
  }

  // What a policy refuses, with the line that asked for it.
  template <class Change>
  void with_place(const Item& item, const Change& change) const {
    std::string message;
    try {
      change();
      return;
    } catch (const c10::ValueError& error) {
      message = error.msg();
    }
    // Without the name of the function.
    check(false, item, message.substr(message.find(": ") + 2));
  }

  const std::string& source_;
  bool has_preset_ = false;
};

} // namespace

PrecisionPolicy parse_precision_policy(
    std::string_view text, const std::string& source) {
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    TORCH_CHECK_VALUE(
        false,
        source,
        ":",
        error.source().begin.line,
        ": not TOML: ",
        error.description());
  }
  return Reader(source).read(root);
}

PrecisionPolicy load_precision_policy(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  TORCH_CHECK_VALUE(
      file.good() || file.eof(), path, ": cannot be read as a file");
  return parse_precision_policy(text, path);
}

} // namespace ampkit
