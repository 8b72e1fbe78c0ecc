#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::io {

class TorchValue;

/// A Python list.
struct TorchList {
  std::vector<TorchValue> items;
};

/// A Python tuple, or a torch.Size.
struct TorchTuple {
  std::vector<TorchValue> items;
};

/// A key of a TorchDict.
using TorchKey = std::variant<int64_t, std::string>;

/// Which of Python's dicts a TorchDict is.
enum class TorchDictKind {
  plain,
  /// collections.OrderedDict, as nn.Module.state_dict() gives.
  ordered,
  /// collections.Counter, as in the state of MultiStepLR.
  counter,
};

/// A Python dict in its order. Not thread-safe while it is being changed.
class AMPKIT_API TorchDict {
 public:
  using Entry = std::pair<TorchKey, TorchValue>;

  explicit TorchDict(TorchDictKind kind = TorchDictKind::plain);
  TorchDict(const TorchDict& other);
  TorchDict(TorchDict&& other) noexcept;
  TorchDict& operator=(TorchDict other) noexcept;
  ~TorchDict();

  TorchDictKind kind() const { return kind_; }

  /// Adds `key`, or replaces its value and keeps its place.
  void set(TorchKey key, TorchValue value);

  bool contains(const TorchKey& key) const;

  /// The value of `key`, or nullptr; valid until the next set().
  const TorchValue* find(const TorchKey& key) const;

  /// Throws c10::Error, naming the key, if it is missing.
  const TorchValue& at(const TorchKey& key) const;

  /// In the order in which the keys were first set.
  const std::vector<Entry>& entries() const& { return entries_; }
  // A loop over the entries of a temporary would outlive it.
  const std::vector<Entry>& entries() && = delete;
  size_t size() const;
  bool empty() const { return size() == 0; }

  /// What Python finds in the `__dict__` of an OrderedDict, or nullptr:
  /// `_metadata`, the versions of modules in a state dict.
  const TorchDict* attributes() const { return attributes_.get(); }
  /// Throws c10::ValueError unless this is an OrderedDict.
  void set_attributes(TorchDict attributes);

 private:
  std::vector<Entry> entries_;
  std::map<TorchKey, size_t> places_;
  std::unique_ptr<TorchDict> attributes_;
  TorchDictKind kind_;
};

/// What a file of torch.save() may hold here: the state dicts of modules,
/// optimizers, schedulers and scalers, and dicts, lists and tuples of them.
///
///     io::TorchDict group;
///     group.set("lr", 1e-3);
///     group.set("foreach", nullptr);            // None
///     double lr = group.at("lr").real();
///
/// Holds tensors by reference, as at::Tensor does: to freeze values, clone.
class AMPKIT_API TorchValue {
 public:
  using Variant = std::variant<
      std::monostate, // None
      bool,
      int64_t,
      double,
      std::string,
      at::Tensor,
      c10::ScalarType, // a torch.dtype
      TorchList,
      TorchTuple,
      TorchDict>;

  /// None.
  TorchValue();
  TorchValue(std::nullptr_t);
  TorchValue(bool value);
  TorchValue(int value);
  TorchValue(int64_t value);
  TorchValue(double value);
  TorchValue(const char* value);
  TorchValue(std::string value);
  /// Throws c10::ValueError if the tensor is undefined.
  TorchValue(at::Tensor value);
  TorchValue(c10::ScalarType value);
  TorchValue(TorchList value);
  TorchValue(TorchTuple value);
  TorchValue(TorchDict value);
  TorchValue(const StateValue& value);

  const Variant& variant() const { return value_; }
  bool is_none() const;

  /// The value in the type asked for. Each throws c10::Error saying what was
  /// expected and what was found. real() accepts an integer too.
  bool boolean() const;
  int64_t integer() const;
  double real() const;
  const std::string& text() const;
  const at::Tensor& tensor() const;
  c10::ScalarType dtype() const;
  const TorchDict& dict() const;
  /// The items of a list or a tuple.
  const std::vector<TorchValue>& items() const;

  /// "tensor Float [2, 3]", "dict of 4 entries", "None": for messages.
  std::string describe() const;

 private:
  Variant value_;
};

/// "'weight'" or "3": what a message says of a key.
AMPKIT_API std::string describe_key(const TorchKey& key);

/// A dict of tensors, numbers and texts, such as the state of a module or of a
/// GradScaler, as a StateDict. Throws c10::Error with all entries that have no
/// place in one: keys that are not texts, None, lists, dicts.
AMPKIT_API StateDict to_state_dict(const TorchValue& value);

/// The reverse: an OrderedDict, as nn.Module.state_dict() gives.
AMPKIT_API TorchDict to_torch_dict(const StateDict& state);

} // namespace ampkit::io
