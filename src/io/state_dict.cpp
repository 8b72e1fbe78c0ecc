#include <ampkit/io/state_dict.h>

#include <sstream>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace ampkit::io {

void StateDict::set(std::string name, StateValue value) {
  TORCH_CHECK_VALUE(!name.empty(), "StateDict::set: the name is empty");
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
    TORCH_CHECK_VALUE(
        tensor->defined(), "StateDict::set: tensor '", name, "' is undefined");
  }
  const auto [place, is_new] = places_.try_emplace(name, entries_.size());
  if (is_new) {
    entries_.emplace_back(std::move(name), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

void StateDict::set(std::string name, int value) {
  set(std::move(name), StateValue(static_cast<int64_t>(value)));
}

void StateDict::set(std::string name, int64_t value) {
  set(std::move(name), StateValue(value));
}

void StateDict::set(std::string name, double value) {
  set(std::move(name), StateValue(value));
}

void StateDict::set(std::string name, bool value) {
  set(std::move(name), StateValue(value));
}

void StateDict::set(std::string name, const char* value) {
  set(std::move(name), StateValue(std::string(value)));
}

void StateDict::set_all(std::string_view prefix, const StateDict& other) {
  for (const auto& [name, value] : other.entries_) {
    set(std::string(prefix) + "." + name, value);
  }
}

StateDict StateDict::subset(std::string_view prefix) const {
  const std::string start = std::string(prefix) + ".";
  StateDict result;
  for (const auto& [name, value] : entries_) {
    if (name.starts_with(start)) {
      result.set(name.substr(start.size()), value);
    }
  }
  return result;
}

bool StateDict::contains(std::string_view name) const {
  return places_.contains(name);
}

const StateValue* StateDict::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &entries_[place->second].second;
}

const StateValue& StateDict::at(std::string_view name) const {
  const StateValue* value = find(name);
  TORCH_CHECK(
      value != nullptr,
      "StateDict: no entry '",
      name,
      "' among ",
      size(),
      " entries");
  return *value;
}

namespace {

[[noreturn]] void throw_wrong_type(
    std::string_view name, const char* expected, const StateValue& found) {
  TORCH_CHECK(
      false,
      "StateDict: entry '",
      name,
      "' should be ",
      expected,
      ", got ",
      describe(found));
}

template <class T>
const T& get_as(
    std::string_view name, const StateValue& value, const char* expected) {
  if (const T* typed = std::get_if<T>(&value)) {
    return *typed;
  }
  throw_wrong_type(name, expected, value);
}

} // namespace

const at::Tensor& StateDict::tensor(std::string_view name) const {
  return get_as<at::Tensor>(name, at(name), "a tensor");
}

int64_t StateDict::integer(std::string_view name) const {
  return get_as<int64_t>(name, at(name), "an integer");
}

double StateDict::real(std::string_view name) const {
  const StateValue& value = at(name);
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*integer);
  }
  return get_as<double>(name, value, "a number");
}

bool StateDict::boolean(std::string_view name) const {
  return get_as<bool>(name, at(name), "a boolean");
}

const std::string& StateDict::text(std::string_view name) const {
  return get_as<std::string>(name, at(name), "a text");
}

std::string describe(const StateValue& value) {
  std::ostringstream out;
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
    out << "tensor " << tensor->scalar_type() << " " << tensor->sizes();
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    out << "integer " << *integer;
  } else if (const auto* real = std::get_if<double>(&value)) {
    out << "number " << *real;
  } else if (const auto* boolean = std::get_if<bool>(&value)) {
    out << (*boolean ? "boolean true" : "boolean false");
  } else {
    out << "text \"" << std::get<std::string>(value) << "\"";
  }
  return out.str();
}

} // namespace ampkit::io
