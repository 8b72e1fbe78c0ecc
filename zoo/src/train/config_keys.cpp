#include "train/config_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include <ampkit/io/nearest_name.h>
#include <c10/util/StringUtil.h>
#include <nlohmann/json.hpp>

namespace ampkit::zoo {
namespace {

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

// TOML tells an integer from a real by its looks.
std::string as_real(double value) {
  auto text = shortest(value);
  const bool real = text.find_first_of(".enf") != std::string::npos;
  return real ? text : text + ".0";
}

std::string as_toml(const KeyTarget& target) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::decay_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return *value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return std::to_string(*value);
        } else if constexpr (std::is_same_v<T, double>) {
          return as_real(*value);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          std::vector<std::string> items;
          std::ranges::transform(*value, std::back_inserter(items), as_real);
          return "[" + c10::Join(", ", items) + "]";
        } else {
          // A JSON string is a TOML basic string.
          return nlohmann::json(*value).dump();
        }
      },
      target);
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

} // namespace

bool Range::contains(double value) const {
  return (low_open ? value > low : value >= low) &&
         (high_open ? value < high : value <= high);
}

std::string Range::to_string() const {
  if (std::isinf(low) && std::isinf(high)) {
    return "";
  }
  if (std::isinf(high)) {
    return (low_open ? "> " : ">= ") + shortest(low);
  }
  if (std::isinf(low)) {
    return (high_open ? "< " : "<= ") + shortest(high);
  }
  return c10::str(
      "in ",
      low_open ? "(" : "[",
      shortest(low),
      ", ",
      shortest(high),
      high_open ? ")" : "]");
}

bool Key::allows_value() const {
  if (const auto* real = std::get_if<double*>(&target)) {
    return choices.empty()
               ? range.contains(**real)
               : std::ranges::find(choices, shortest(**real)) != choices.end();
  }
  if (const auto* integer = std::get_if<int64_t*>(&target)) {
    return range.contains(static_cast<double>(**integer));
  }
  if (const auto* text = std::get_if<std::string*>(&target)) {
    return choices.empty() || (or_toml_file && (*text)->ends_with(".toml")) ||
           std::ranges::find(choices, **text) != choices.end();
  }
  if (const auto* list = std::get_if<std::vector<double>*>(&target)) {
    return !(*list)->empty() && std::ranges::all_of(**list, [this](double v) {
      return range.contains(v);
    });
  }
  return true;
}

std::string Key::expected() const {
  if (!choices.empty()) {
    return "one of " + c10::Join(", ", choices) +
           (or_toml_file ? "; or a TOML file" : "");
  }
  static constexpr std::array kNames{
      "true or false", "an integer", "a number", "a text", "a list of numbers"};
  const auto limits = range.to_string();
  return kNames.at(target.index()) + (limits.empty() ? "" : " " + limits);
}

std::string Key::value() const {
  return as_toml(target);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i) {
    text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

std::string nearest_key(
    const std::string& typed, const std::vector<std::string>& known) {
  const auto same_part =
      std::ranges::find(known, last_part(typed), [](const std::string& name) {
        return last_part(name);
      });
  return same_part != known.end() ? *same_part : nearest_name(typed, known);
}

} // namespace ampkit::zoo
