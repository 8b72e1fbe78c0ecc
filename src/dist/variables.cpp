#include "dist/variables.h"

#include <charconv>

#include <c10/util/Exception.h>

namespace ampkit::dist {

std::string Variables::text(const std::string& name) const {
  const auto value = read_(name);
  TORCH_CHECK_VALUE(
      value.has_value(),
      "dist::init: ",
      name,
      " must be set under ",
      to_string(launcher_),
      ", got none");
  return *value;
}

int Variables::number(
    const std::string& name,
    int least,
    int most,
    const std::string& limit) const {
  const auto value = text(name);
  int number = 0;
  const auto* end = value.data() + value.size();
  const auto parsed = std::from_chars(value.data(), end, number);
  TORCH_CHECK_VALUE(
      parsed.ec == std::errc() && parsed.ptr == end,
      "dist::init: ",
      name,
      " must be a whole number, got '",
      value,
      "'");
  TORCH_CHECK_VALUE(
      number >= least && number <= most,
      "dist::init: ",
      name,
      " must be in [",
      least,
      ", ",
      most,
      "]",
      limit.empty() ? "" : " because of " + limit,
      ", got ",
      number);
  return number;
}

int Variables::number_or(
    const std::string& name, int otherwise, int least, int most) const {
  return has(name) ? number(name, least, most) : otherwise;
}

} // namespace ampkit::dist
