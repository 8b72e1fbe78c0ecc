#include <ampkit/io/torch_value.h>

#include <optional>
#include <sstream>
#include <type_traits>

#include <c10/util/Exception.h>

namespace ampkit::io {
namespace {

template <class T>
const T& get_as(const TorchValue& value, const char* expected) {
  const T* typed = std::get_if<T>(&value.variant());
  TORCH_CHECK(
      typed != nullptr,
      "TorchValue: should be ",
      expected,
      ", got ",
      value.describe());
  return *typed;
}

} // namespace

TorchDict::TorchDict(TorchDictKind kind) : kind_(kind) {}

TorchDict::TorchDict(const TorchDict& other)
    : entries_(other.entries_),
      places_(other.places_),
      attributes_(
          other.attributes_ ? std::make_unique<TorchDict>(*other.attributes_)
                            : nullptr),
      kind_(other.kind_) {}

TorchDict::TorchDict(TorchDict&& other) noexcept = default;

TorchDict& TorchDict::operator=(TorchDict other) noexcept {
  entries_.swap(other.entries_);
  places_.swap(other.places_);
  attributes_.swap(other.attributes_);
  std::swap(kind_, other.kind_);
  return *this;
}

TorchDict::~TorchDict() = default;

void TorchDict::set(TorchKey key, TorchValue value) {
  const auto [place, is_new] = places_.try_emplace(key, entries_.size());
  if (is_new) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

bool TorchDict::contains(const TorchKey& key) const {
  return places_.contains(key);
}

const TorchValue* TorchDict::find(const TorchKey& key) const {
  const auto place = places_.find(key);
  return place == places_.end() ? nullptr : &entries_[place->second].second;
}

const TorchValue& TorchDict::at(const TorchKey& key) const {
  const TorchValue* value = find(key);
  TORCH_CHECK(
      value != nullptr,
      "TorchDict: no entry ",
      describe_key(key),
      " among ",
      size());
  return *value;
}

size_t TorchDict::size() const {
  return entries_.size();
}

void TorchDict::set_attributes(TorchDict attributes) {
  TORCH_CHECK_VALUE(
      kind_ == TorchDictKind::ordered,
      "TorchDict::set_attributes: only an OrderedDict has some");
  attributes_ = std::make_unique<TorchDict>(std::move(attributes));
}

TorchValue::TorchValue() = default;
TorchValue::TorchValue(std::nullptr_t) {}
TorchValue::TorchValue(bool value) : value_(value) {}
TorchValue::TorchValue(int value) : value_(static_cast<int64_t>(value)) {}
TorchValue::TorchValue(int64_t value) : value_(value) {}
TorchValue::TorchValue(double value) : value_(value) {}
TorchValue::TorchValue(const char* value) : value_(std::string(value)) {}
TorchValue::TorchValue(std::string value) : value_(std::move(value)) {}
TorchValue::TorchValue(at::Tensor value) : value_(std::move(value)) {
  TORCH_CHECK_VALUE(
      std::get<at::Tensor>(value_).defined(),
      "TorchValue: the tensor is undefined");
}
TorchValue::TorchValue(c10::ScalarType value) : value_(value) {}
TorchValue::TorchValue(TorchList value) : value_(std::move(value)) {}
TorchValue::TorchValue(TorchTuple value) : value_(std::move(value)) {}
TorchValue::TorchValue(TorchDict value) : value_(std::move(value)) {}
TorchValue::TorchValue(const StateValue& value) {
  std::visit([&](const auto& held) { *this = TorchValue(held); }, value);
}

bool TorchValue::is_none() const {
  return std::holds_alternative<std::monostate>(value_);
}

bool TorchValue::boolean() const {
  return get_as<bool>(*this, "a boolean");
}

int64_t TorchValue::integer() const {
  return get_as<int64_t>(*this, "an integer");
}

double TorchValue::real() const {
  if (const auto* integer = std::get_if<int64_t>(&value_)) {
    return static_cast<double>(*integer);
  }
  return get_as<double>(*this, "a number");
}

const std::string& TorchValue::text() const {
  return get_as<std::string>(*this, "a text");
}

const at::Tensor& TorchValue::tensor() const {
  return get_as<at::Tensor>(*this, "a tensor");
}

c10::ScalarType TorchValue::dtype() const {
  return get_as<c10::ScalarType>(*this, "a dtype");
}

const TorchDict& TorchValue::dict() const {
  return get_as<TorchDict>(*this, "a dict");
}

const std::vector<TorchValue>& TorchValue::items() const {
  if (const auto* tuple = std::get_if<TorchTuple>(&value_)) {
    return tuple->items;
  }
  return get_as<TorchList>(*this, "a list or a tuple").items;
}

namespace {

// Those that a StateDict can hold; else nothing.
std::optional<StateValue> to_state_value(const TorchValue& value) {
  return std::visit(
      [](const auto& held) -> std::optional<StateValue> {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (
            std::is_same_v<Held, bool> || std::is_same_v<Held, int64_t> ||
            std::is_same_v<Held, double> || std::is_same_v<Held, std::string> ||
            std::is_same_v<Held, at::Tensor>) {
          return StateValue(held);
        } else {
          return std::nullopt;
        }
      },
      value.variant());
}

} // namespace

std::string describe_key(const TorchKey& key) {
  if (const auto* number = std::get_if<int64_t>(&key)) {
    return std::to_string(*number);
  }
  return "'" + std::get<std::string>(key) + "'";
}

std::string TorchValue::describe() const {
  if (const auto state = to_state_value(*this)) {
    return io::describe(*state);
  }
  const auto& held = value_;
  std::ostringstream out;
  if (const auto* list = std::get_if<TorchList>(&held)) {
    out << "list of " << list->items.size();
  } else if (const auto* tuple = std::get_if<TorchTuple>(&held)) {
    out << "tuple of " << tuple->items.size();
  } else if (const auto* dict = std::get_if<TorchDict>(&held)) {
    out << "dict of " << dict->size() << " entries";
  } else if (const auto* dtype = std::get_if<c10::ScalarType>(&held)) {
    out << "dtype " << *dtype;
  } else {
    out << "None";
  }
  return out.str();
}

StateDict to_state_dict(const TorchValue& value) {
  StateDict state;
  std::ostringstream problems;
  for (const auto& [key, item] : value.dict().entries()) {
    const auto* name = std::get_if<std::string>(&key);
    auto converted = to_state_value(item);
    if (name == nullptr || name->empty()) {
      problems << "\n  the key " << describe_key(key) << " is not a name";
    } else if (!converted) {
      problems << "\n  '" << *name << "' is " << item.describe();
    } else {
      state.set(*name, std::move(*converted));
    }
  }
  TORCH_CHECK(
      problems.str().empty(),
      "to_state_dict: only tensors, numbers and texts under names have a place "
      "in a StateDict; take the inner dict that holds them:",
      problems.str());
  return state;
}

TorchDict to_torch_dict(const StateDict& state) {
  TorchDict dict(TorchDictKind::ordered);
  for (const auto& [name, value] : state.entries()) {
    dict.set(name, value);
  }
  return dict;
}

} // namespace ampkit::io
