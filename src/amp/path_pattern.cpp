#include "amp/path_pattern.h"

#include <vector>

namespace ampkit {
namespace {

using Names = std::vector<std::string_view>;

Names split(std::string_view path) {
  Names names;
  while (!path.empty()) {
    const auto dot = path.find('.');
    names.push_back(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view()
                                         : path.substr(dot + 1);
  }
  return names;
}

bool matches_name(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) {
    return name.empty();
  }
  if (pattern.front() == '*') {
    return matches_name(pattern.substr(1), name) ||
           (!name.empty() && matches_name(pattern, name.substr(1)));
  }
  return !name.empty() && pattern.front() == name.front() &&
         matches_name(pattern.substr(1), name.substr(1));
}

// From the given names on; a pattern that ends early names a module above.
bool matches_from(const Names& pattern, size_t i, const Names& path, size_t j) {
  if (i == pattern.size()) {
    return true;
  }
  if (pattern[i] == "**") {
    return matches_from(pattern, i + 1, path, j) ||
           (j < path.size() && matches_from(pattern, i, path, j + 1));
  }
  return j < path.size() && matches_name(pattern[i], path[j]) &&
         matches_from(pattern, i + 1, path, j + 1);
}

} // namespace

bool matches_path(std::string_view pattern, std::string_view path) {
  return matches_from(split(pattern), 0, split(path), 0);
}

bool is_path_pattern(std::string_view pattern) {
  return pattern.empty() || (pattern.front() != '.' && pattern.back() != '.' &&
                             pattern.find("..") == std::string_view::npos);
}

} // namespace ampkit
