#include <array>
#include <charconv>
#include <sstream>

#include <ampkit/diagnose/inject.h>
#include <ampkit/io/nearest_name.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "amp/path_pattern.h"

namespace ampkit::diagnose {
namespace {

const std::vector<std::string> kFaultKinds{
    "nan", "inf", "-inf", "overflow", "underflow", "zero"};
const std::vector<std::string> kFaultKeys{"at", "step", "rank", "direction"};
const std::vector<std::string> kFaultDirections{"forward", "backward"};

// The place of a word among those known.
size_t index_of(
    const std::string& word,
    const std::vector<std::string>& known,
    const char* what,
    const std::string& text) {
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i] == word) {
      return i;
    }
  }
  const auto guess = nearest_name(word, known);
  TORCH_CHECK_VALUE(
      false,
      "Fault::parse: unknown ",
      what,
      " '",
      word,
      "' in '",
      text,
      "'; ",
      guess.empty() ? c10::str("known are ", c10::Join(", ", known))
                    : "did you mean '" + guess + "'?");
}

int64_t number_of(
    const std::string& key, const std::string& value, const std::string& text) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  TORCH_CHECK_VALUE(
      read.ec == std::errc() && read.ptr == end && number >= 0,
      "Fault::parse: ",
      key,
      " must be a number from 0, got '",
      value,
      "' in '",
      text,
      "'");
  return number;
}

void set_field(Fault& fault, const std::string& word, const std::string& text) {
  const auto equals = word.find('=');
  const auto key = word.substr(0, equals);
  const auto which = index_of(key, kFaultKeys, "key", text);
  const auto value =
      equals == std::string::npos ? std::string() : word.substr(equals + 1);
  TORCH_CHECK_VALUE(
      !value.empty(), "Fault::parse: ", key, " has no value in '", text, "'");
  if (which == 0) {
    TORCH_CHECK_VALUE(
        is_path_pattern(value),
        "Fault::parse: a name is empty in pattern '",
        value,
        "'");
    fault.at = value;
  } else if (which == 1) {
    fault.step = number_of(key, value, text);
  } else if (which == 2) {
    fault.rank = static_cast<int>(number_of(key, value, text));
  } else {
    fault.direction = static_cast<Direction>(
        index_of(value, kFaultDirections, "direction", text));
  }
}

} // namespace

Fault Fault::parse(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  TORCH_CHECK_VALUE(
      words >> word,
      "Fault::parse: nothing given; write for example 'nan at=fc step=3'");
  Fault fault;
  fault.kind = static_cast<Kind>(index_of(word, kFaultKinds, "kind", text));
  while (words >> word) {
    set_field(fault, word, text);
  }
  TORCH_CHECK_VALUE(
      !fault.at.empty(),
      "Fault::parse: at=MODULE is missing in '",
      text,
      "'; at=** is the whole network");
  return fault;
}

std::string to_string(const Fault& fault) {
  auto text = kFaultKinds.at(static_cast<size_t>(fault.kind)) +
              " at=" + fault.at + " step=" + std::to_string(fault.step);
  if (fault.rank >= 0) {
    text += " rank=" + std::to_string(fault.rank);
  }
  return text + " direction=" + to_string(fault.direction);
}

} // namespace ampkit::diagnose
