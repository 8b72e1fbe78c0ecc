#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit::io {

/// One value of a StateDict.
using StateValue = std::variant<at::Tensor, int64_t, double, bool, std::string>;

/// Ordered names -> tensors and scalars: the one form in which everything that
/// has state gives it away and takes it back. Saving and loading know nothing
/// else.
///
///     io::StateDict state;
///     state.set("scale", 65536.0);
///     state.set_all("model", module_state);   // "model.<name>" for each entry
///     double scale = state.real("scale");
///
/// Holds tensors by reference, as at::Tensor does: to freeze values, clone.
/// Not thread-safe while it is being changed.
class AMPKIT_API StateDict {
 public:
  using Entry = std::pair<std::string, StateValue>;

  /// Adds `name`, or replaces its value and keeps its place. Throws
  /// c10::ValueError if `name` is empty or the tensor is undefined.
  void set(std::string name, StateValue value);
  // Without these, an int would be ambiguous and a literal would become a bool.
  void set(std::string name, int value);
  void set(std::string name, int64_t value);
  void set(std::string name, double value);
  void set(std::string name, bool value);
  void set(std::string name, const char* value);

  /// Adds every entry of `other` as "<prefix>.<name>".
  void set_all(std::string_view prefix, const StateDict& other);

  /// The entries whose names begin with "<prefix>.", without that prefix.
  StateDict subset(std::string_view prefix) const;

  bool contains(std::string_view name) const;

  /// The value of `name`, or nullptr; valid until the next set().
  const StateValue* find(std::string_view name) const;

  /// The value of `name` in the type asked for. Each throws c10::Error naming
  /// the entry, what was expected and what was found, if it is missing or of
  /// another type. real() accepts an integer too.
  const at::Tensor& tensor(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool boolean(std::string_view name) const;
  const std::string& text(std::string_view name) const;

  /// In the order in which the names were first set.
  const std::vector<Entry>& entries() const& { return entries_; }
  // A loop over the entries of a temporary would outlive it.
  const std::vector<Entry>& entries() && = delete;
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

 private:
  const StateValue& at(std::string_view name) const;

  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> places_;
};

/// "tensor Float [2, 3]", "integer 4", ...: what a message says of a value.
AMPKIT_API std::string describe(const StateValue& value);

} // namespace ampkit::io
