#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Storage.h>

#include <ampkit/io/torch_value.h>

#include "io/pickle_opcodes.h"

namespace ampkit::io {

/// Writes the pickle of a value as torch.save() does. The values of tensors are
/// not in it, but the numbers of their storages.
class TorchPickler {
 public:
  /// Throws c10::ValueError naming the entry that cannot be written.
  explicit TorchPickler(const TorchValue& root);

  const std::string& pickle() const { return pickle_; }

  /// Storage n belongs into the record "data/n". They may be on any device.
  const std::vector<c10::Storage>& storages() const { return storages_; }

 private:
  void write(const TorchValue& value);
  void write_held(std::monostate);
  void write_held(bool value);
  void write_held(int64_t value);
  void write_held(double value);
  void write_held(const std::string& value);
  void write_held(const at::Tensor& tensor);
  void write_held(c10::ScalarType dtype);
  void write_held(const TorchList& list);
  void write_held(const TorchTuple& tuple);
  void write_held(const TorchDict& dict);

  void opcode(PickleOpcode code) { pickle_ += static_cast<char>(code); }
  void number(uint64_t value, size_t width);
  void global(const char* module, const std::string& name);
  void text(const std::string& value);
  void integers(c10::IntArrayRef values);
  void ordered_dict();
  bool recall(const std::string& key);
  void keep(const std::string& key);
  void check_tensor(const at::Tensor& tensor) const;
  struct Stored;
  const Stored& stored(const at::Tensor& tensor);
  void storage_id(const Stored& storage, const char* type, int64_t count);
  [[noreturn]] void refuse(const std::string& reason) const;

  struct Stored {
    size_t number;
    // Python takes the dtype of a storage from the tensor that mentions it
    // first. Undefined: an UntypedStorage.
    c10::ScalarType dtype;
  };

  std::string pickle_;
  std::vector<c10::Storage> storages_;
  std::map<const void*, Stored> numbers_;
  std::map<std::string, uint64_t> memo_;
  // With values of their own, where conj() and the like only promise them.
  std::vector<at::Tensor> resolved_;
  // Keys that lead to the value that is being written.
  std::vector<std::string> place_;
};

} // namespace ampkit::io
