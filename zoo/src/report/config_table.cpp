#include "report/config_table.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "report/html.h"

namespace ampkit::zoo {
namespace {

/// A value as the file's author wrote it, but without a string's quotes.
std::string as_text(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* number = node.as_floating_point()) {
    return fmt::format("{}", number->get()); // toml++ prints 0.1 in 17 digits
  }
  std::ostringstream out;
  if (const auto* array = node.as_array()) {
    for (const auto& item : *array) {
      out << (out.tellp() > 0 ? ", " : "") << as_text(item);
    }
    return "[" + out.str() + "]";
  }
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

/// Tables in the order of the file, which is the order that people know.
std::vector<std::pair<std::string, const toml::node*>> in_file_order(
    const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> entries;
  for (const auto& [key, node] : table) {
    entries.emplace_back(std::string(key.str()), &node);
  }
  std::stable_sort(
      entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.second->source().begin < b.second->source().begin;
      });
  return entries;
}

void add_table(
    std::string& html, const std::string& name, const toml::table& table) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::vector<std::pair<std::string, const toml::table*>> inner;
  for (const auto& [key, node] : in_file_order(table)) {
    if (const auto* child = node->as_table()) {
      inner.emplace_back(name.empty() ? key : name + "." + key, child);
      continue;
    }
    rows.emplace_back(key, as_text(*node));
  }
  if (!rows.empty()) {
    if (!name.empty()) {
      html += fmt::format("<h3>{}</h3>\n", escape_html(name));
    }
    html += html_table(rows);
  }
  for (const auto& [child_name, child] : inner) {
    add_table(html, child_name, *child);
  }
}

} // namespace

ConfigTable config_table(std::string_view toml) {
  ConfigTable out;
  try {
    const auto config = toml::parse(toml);
    add_table(out.html, "", config);
    out.precision = config["precision"]["preset"].value_or(std::string());
    out.samples_per_step = config["data"]["batch_size"].value_or(int64_t{0}) *
                           config["train"]["accumulate"].value_or(int64_t{1});
  } catch (const toml::parse_error&) {
    out.html = "<pre>" + escape_html(toml) + "</pre>\n";
  }
  return out;
}

} // namespace ampkit::zoo
