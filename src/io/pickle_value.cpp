#include "io/pickle_value.h"

#include <c10/util/StringUtil.h>

namespace ampkit::io {
namespace {

// A mention takes two bytes in the pickle and a value of some 100 in memory.
constexpr size_t kBytesForAnyPickle = size_t{64} << 20;
constexpr size_t kBytesPerPickledByte = 100;

class Converter {
 public:
  explicit Converter(size_t pickle_size)
      : left_(kBytesForAnyPickle + kBytesPerPickledByte * pickle_size) {}

  TorchValue convert(const PickleNode& node) {
    check_pickle(
        ++level_ <= kMostPickleLevels,
        "values nest in more than ",
        kMostPickleLevels,
        " levels");
    use(sizeof(TorchValue));
    TorchValue value = std::visit(
        [this](const auto& held) { return this->convert_held(held); },
        node.value);
    --level_;
    return value;
  }

 private:
  void use(size_t bytes) {
    check_pickle(
        bytes <= left_,
        "the same values are mentioned so often that they would fill the "
        "memory");
    left_ -= bytes;
  }

  TorchValue convert_held(std::monostate) { return nullptr; }
  TorchValue convert_held(bool value) { return value; }
  TorchValue convert_held(int64_t value) { return value; }
  TorchValue convert_held(double value) { return value; }
  TorchValue convert_held(c10::ScalarType value) { return value; }
  TorchValue convert_held(const at::Tensor& value) { return value; }

  TorchValue convert_held(const std::string& value) {
    use(value.size());
    return value;
  }

  TorchValue convert_held(const PickleSequence& sequence) {
    std::vector<TorchValue> items;
    for (const PickleNode* item : sequence.items) {
      items.push_back(convert(*item));
    }
    if (sequence.is_tuple) {
      return TorchTuple{std::move(items)};
    }
    return TorchList{std::move(items)};
  }

  TorchValue convert_held(const PickleDict& dict) {
    TorchDict result(dict.kind);
    for (const auto& [key, value] : dict.items) {
      use(2 * sizeof(TorchDict::Entry));
      result.set(convert_key(*key), convert(*value));
    }
    if (dict.attributes != nullptr) {
      result.set_attributes(convert(*dict.attributes).dict());
    }
    return result;
  }

  TorchValue convert_held(const PickleGlobal& global) {
    check_pickle(false, global.name, " is a class or function, not a value");
    return {};
  }

  TorchValue convert_held(const PickleStorage&) {
    check_pickle(false, "there is a storage outside of a tensor");
    return {};
  }

  TorchKey convert_key(const PickleNode& node) {
    if (const auto* number = std::get_if<int64_t>(&node.value)) {
      return *number;
    }
    const auto* text = std::get_if<std::string>(&node.value);
    check_pickle(
        text != nullptr,
        "a key of a dict is ",
        kind_of(node),
        "; only integers and texts can be");
    use(text->size());
    return *text;
  }

  size_t level_ = 0;
  size_t left_;
};

} // namespace

TorchValue to_torch_value(const PickleNode& root, size_t pickle_size) {
  return Converter(pickle_size).convert(root);
}

} // namespace ampkit::io
