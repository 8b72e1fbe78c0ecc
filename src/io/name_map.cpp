#include <ampkit/io/name_map.h>

#include <map>
#include <regex>
#include <sstream>

#include <c10/util/Exception.h>

namespace ampkit::io {

NameMap replace_prefixes(
    std::vector<std::pair<std::string, std::string>> prefixes) {
  return [prefixes = std::move(prefixes)](const std::string& name) {
    for (const auto& [prefix, replacement] : prefixes) {
      if (name.starts_with(prefix)) {
        return replacement + name.substr(prefix.size());
      }
    }
    return name;
  };
}

NameMap replace_patterns(
    const std::vector<std::pair<std::string, std::string>>& rules) {
  std::vector<std::pair<std::regex, std::string>> compiled;
  for (const auto& [pattern, replacement] : rules) {
    try {
      compiled.emplace_back(std::regex(pattern), replacement);
    } catch (const std::regex_error& error) {
      TORCH_CHECK_VALUE(
          false,
          "replace_patterns: '",
          pattern,
          "' is not a regular expression: ",
          error.what());
    }
  }
  return [compiled = std::move(compiled)](const std::string& name) {
    std::string result = name;
    for (const auto& [pattern, replacement] : compiled) {
      result = std::regex_replace(result, pattern, replacement);
    }
    return result;
  };
}

StateDict renamed(const StateDict& state, const NameMap& map) {
  StateDict result;
  std::map<std::string, std::string> origins;
  std::ostringstream problems;
  for (const auto& [name, value] : state.entries()) {
    const std::string target = map(name);
    if (target.empty()) {
      continue;
    }
    const auto [place, is_new] = origins.emplace(target, name);
    if (is_new) {
      result.set(target, value);
    } else {
      problems << "\n  '" << place->second << "' and '" << name
               << "' would both be '" << target << "'";
    }
  }
  TORCH_CHECK(
      problems.str().empty(),
      "renamed: names must stay different:",
      problems.str());
  return result;
}

} // namespace ampkit::io
