#include <ampkit/zoo/train/config.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <c10/util/StringUtil.h>

#include <toml++/toml.h>

#include "train/config_keys.h"

namespace ampkit::zoo {
namespace {

// "configs/a.toml:12", or the override itself.
using Place = std::string;

template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) {
    throw ConfigError({__func__, __FILE__, __LINE__}, c10::str(parts...));
  }
}

std::string printed(const toml::node& node) {
  std::ostringstream out;
  if (const auto* text = node.as_string()) {
    out << *text;
  } else if (node.is_table()) {
    out << "a section";
  } else if (const auto* items = node.as_array()) {
    out << *items;
  } else {
    node.visit([&out](const auto& value) { out << value; });
  }
  return out.str();
}

// None unless every item is a number.
std::optional<std::vector<double>> numbers(const toml::node& node) {
  const auto* items = node.as_array();
  if (items == nullptr) {
    return std::nullopt;
  }
  std::vector<double> result;
  for (const auto& item : *items) {
    if (!item.is_number()) {
      return std::nullopt;
    }
    result.push_back(*item.value<double>());
  }
  return result;
}

// Writes the value to its target; false if the type does not fit.
bool store(const toml::node& node, const KeyTarget& target) {
  return std::visit(
      [&node](auto* value) {
        using T = std::decay_t<decltype(*value)>;
        std::optional<T> found;
        if constexpr (std::is_same_v<T, double>) {
          found = node.is_number() ? node.value<double>() : std::nullopt;
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          found = numbers(node);
        } else {
          found = node.value_exact<T>();
        }
        if (found) {
          *value = *found;
        }
        return found.has_value();
      },
      target);
}

void resolve_alias(const Key& key) {
  if (const auto* text = std::get_if<std::string*>(&key.target)) {
    const auto alias = std::ranges::find(key.aliases, **text, &KeyAlias::first);
    if (alias != key.aliases.end()) {
      **text = alias->second;
    }
  }
}

bool accept(const toml::node& node, const Key& key) {
  if (!store(node, key.target)) {
    return false;
  }
  resolve_alias(key);
  return key.allows_value();
}

void assign(const Place& place, const Key& key, const toml::node& node) {
  check(
      accept(node, key),
      place,
      ": ",
      key.name,
      ": expected ",
      key.expected(),
      ", found ",
      printed(node));
}

class Reader {
 public:
  explicit Reader(RunConfig& config) : keys_(keys_of(config)) {
    for (const auto& key : keys_) {
      names_.push_back(key.name);
      const auto section = section_of(key);
      if (sections_.empty() || sections_.back() != section) {
        sections_.push_back(section);
      }
    }
  }

  void read(const toml::table& table, const std::string& source) {
    for (const auto& [section, node] : table) {
      const auto place = c10::str(source, ":", section.source().begin.line);
      const std::string name(section.str());
      check_section(place, name, node);
      for (const auto& [key, value] : *node.as_table()) {
        const auto line = key.source().begin.line;
        const auto where = c10::str(source, ":", line);
        set(where, find(where, name + "." + std::string(key.str())), value);
      }
    }
  }

  // "section.key=value"
  void override_with(const std::string& text) {
    const auto place = "--set " + text;
    const auto equals = text.find('=');
    check(equals != std::string::npos, place, ": expected section.key=value");
    const auto& key = find(place, text.substr(0, equals));
    const auto value = text.substr(equals + 1);
    const bool bare = std::holds_alternative<std::string*>(key.target) &&
                      !value.starts_with('"') && !value.starts_with('\'');
    if (bare) {
      set(place, key, toml::value<std::string>(value));
      return;
    }
    try {
      const auto table = toml::parse("value = " + value);
      set(place, key, *table.get("value"));
    } catch (const toml::parse_error&) {
      set(place, key, toml::value<std::string>(value));
    }
  }

  // A value for nobody is a mistake, unless it is the default, as in the file
  // that a run writes.
  void check_used() const {
    RunConfig defaults;
    const auto untouched = keys_of(defaults);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const bool is_default = keys_[i].value() == untouched[i].value();
      if (!is_default && !keys_[i].only_of.empty()) {
        check_owner(keys_[i]);
      }
    }
  }

 private:
  void check_owner(const Key& key) const {
    const auto chosen = owner_of(key);
    const auto& owners = key.only_of;
    check(
        std::ranges::find(owners, chosen) != owners.end(),
        places_.at(key.name),
        ": ",
        key.name,
        ": ",
        chosen,
        " does not have it; ",
        listed(owners),
        owners.size() == 1 ? " does" : " do",
        ". Leave it out, or take another ",
        section_of(key),
        ".name");
  }

  static std::string section_of(const Key& key) {
    return key.name.substr(0, key.name.find('.'));
  }

  // The optimizer or schedule that is chosen.
  std::string owner_of(const Key& key) const {
    const auto found =
        std::ranges::find(keys_, section_of(key) + ".name", &Key::name);
    return *std::get<std::string*>(found->target);
  }

  void set(const Place& place, const Key& key, const toml::node& node) {
    assign(place, key, node);
    places_[key.name] = place;
  }

  void check_section(
      const Place& place, const std::string& name, const toml::node& node) {
    const bool known = std::ranges::find(sections_, name) != sections_.end();
    if (!known && !node.is_table()) {
      find(place, name); // throws: a key outside any section
    }
    check(
        known,
        place,
        ": [",
        name,
        "]: unknown section",
        suggestion(name, sections_),
        "; sections are ",
        c10::Join(", ", sections_));
    check(
        node.is_table(),
        place,
        ": ",
        name,
        ": expected a section, found ",
        printed(node));
  }

  const Key& find(const Place& place, const std::string& name) const {
    const auto found = std::ranges::find(keys_, name, &Key::name);
    check(
        found != keys_.end(),
        place,
        ": ",
        name,
        ": unknown key",
        suggestion(name, names_),
        "; `ampkit train --keys` lists all");
    return *found;
  }

  static std::string suggestion(
      const std::string& typed, const std::vector<std::string>& known) {
    const auto name = nearest_key(typed, known);
    return name.empty() ? "" : ", did you mean " + name + "?";
  }

  std::vector<Key> keys_;
  std::vector<std::string> names_;
  std::vector<std::string> sections_;
  std::map<std::string, Place> places_; // of what was set
};

toml::table parse(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    const auto why = error.description();
    const auto message = c10::str(source, ":", line, ": not TOML: ", why);
    throw ConfigError({__func__, __FILE__, __LINE__}, message);
  }
}

} // namespace

RunConfig parse_config(
    std::string_view text,
    const std::string& source,
    const std::vector<std::string>& overrides) {
  RunConfig config;
  Reader reader(config);
  reader.read(parse(text, source), source);
  for (const auto& entry : overrides) {
    reader.override_with(entry);
  }
  reader.check_used();
  return config;
}

RunConfig load_config(
    const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  check(file.good() || file.eof(), path, ": cannot be read as a file");
  auto config = parse_config(text, path, overrides);
  if (config.output.name.empty()) {
    config.output.name = std::filesystem::path(path).stem().string();
  }
  return config;
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  std::ostringstream out;
  std::string section;
  for (const auto& key : keys_of(copy)) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      out << (section.empty() ? "" : "\n");
      section = key.name.substr(0, dot);
      out << "[" << section << "]\n";
    }
    out << key.name.substr(dot + 1) << " = " << key.value() << "\n";
  }
  return out.str();
}

std::vector<std::string> differences(
    const RunConfig& before, const RunConfig& after) {
  RunConfig first = before;
  RunConfig second = after;
  const auto old_keys = keys_of(first);
  const auto new_keys = keys_of(second);
  std::vector<std::string> result;
  for (size_t i = 0; i < old_keys.size(); ++i) {
    const auto was = old_keys[i].value();
    const auto is = new_keys[i].value();
    if (was != is) {
      result.push_back(c10::str(old_keys[i].name, ": ", was, " -> ", is));
    }
  }
  return result;
}

std::vector<KeyHelp> config_keys() {
  RunConfig defaults;
  std::vector<KeyHelp> result;
  for (const auto& key : keys_of(defaults)) {
    result.push_back({key.name, key.value(), key.expected(), key.help});
  }
  return result;
}

} // namespace ampkit::zoo
