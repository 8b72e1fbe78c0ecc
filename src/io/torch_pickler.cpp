#include "io/torch_pickler.h"

#include <bit>
#include <limits>

#include <c10/util/Exception.h>

#include "io/pickle_value.h"
#include "io/torch_dtypes.h"
#include "io/utf8.h"

namespace ampkit::io {

TorchPickler::TorchPickler(const TorchValue& root) {
  opcode(kProto);
  number(2, 1);
  write(root);
  opcode(kStop);
}

void TorchPickler::refuse(const std::string& reason) const {
  std::string path;
  for (const auto& key : place_) {
    path += "[" + key + "]";
  }
  TORCH_CHECK_VALUE(
      false,
      "save_torch_state: entry ",
      path.empty() ? "at the top" : path,
      " ",
      reason);
}

void TorchPickler::number(uint64_t value, size_t width) {
  for (size_t i = 0; i < width; ++i) {
    pickle_ += static_cast<char>((value >> (8 * i)) & 0xFFU);
  }
}

// What was written before under `key` is only mentioned again.
bool TorchPickler::recall(const std::string& key) {
  const auto place = memo_.find(key);
  if (place == memo_.end()) {
    return false;
  }
  const bool is_short = place->second < 256;
  opcode(is_short ? kBinGet : kLongBinGet);
  number(place->second, is_short ? 1 : 4);
  return true;
}

void TorchPickler::keep(const std::string& key) {
  const uint64_t index = memo_.size();
  memo_.emplace(key, index);
  opcode(index < 256 ? kBinPut : kLongBinPut);
  number(index, index < 256 ? 1 : 4);
}

void TorchPickler::global(const char* module, const std::string& name) {
  const std::string lines = std::string(module) + "\n" + name + "\n";
  const std::string key = "c" + lines;
  if (!recall(key)) {
    opcode(kGlobal);
    pickle_ += lines;
    keep(key);
  }
}

void TorchPickler::text(const std::string& value) {
  if (!is_utf8(value)) {
    refuse("has a text or key that is not UTF-8");
  }
  const std::string key = "X" + value;
  if (!recall(key)) {
    if (value.size() > std::numeric_limits<uint32_t>::max()) {
      refuse("has a text of more than 4 GiB");
    }
    opcode(kBinUnicode);
    number(value.size(), 4);
    pickle_ += value;
    keep(key);
  }
}

void TorchPickler::write(const TorchValue& value) {
  if (place_.size() >= kMostPickleLevels) {
    refuse("nests deeper than 100 levels");
  }
  std::visit([this](const auto& held) { write_held(held); }, value.variant());
}

void TorchPickler::write_held(std::monostate) {
  opcode(kNone);
}

void TorchPickler::write_held(bool value) {
  opcode(value ? kNewTrue : kNewFalse);
}

void TorchPickler::write_held(int64_t value) {
  if (value >= 0 && value < 256) {
    opcode(kBinInt1);
    number(static_cast<uint64_t>(value), 1);
  } else if (value == static_cast<int32_t>(value)) {
    opcode(kBinInt);
    number(static_cast<uint64_t>(value), 4);
  } else {
    opcode(kLong1);
    number(8, 1);
    number(static_cast<uint64_t>(value), 8);
  }
}

void TorchPickler::write_held(double value) {
  opcode(kBinFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) { // big-endian
    number((bits >> shift) & 0xFFU, 1);
  }
}

void TorchPickler::write_held(const std::string& value) {
  text(value);
}

void TorchPickler::write_held(c10::ScalarType dtype) {
  const TorchDtype* named = find_torch_dtype(dtype);
  if (named == nullptr) {
    refuse(c10::str("is the dtype ", dtype, ", which Python does not save"));
  }
  global("torch", named->name);
}

void TorchPickler::write_held(const TorchList& list) {
  opcode(kEmptyList);
  opcode(kMark);
  place_.emplace_back();
  for (size_t i = 0; i < list.items.size(); ++i) {
    place_.back() = std::to_string(i);
    write(list.items[i]);
  }
  place_.pop_back();
  opcode(kAppends);
}

void TorchPickler::write_held(const TorchTuple& tuple) {
  opcode(kMark);
  place_.emplace_back();
  for (size_t i = 0; i < tuple.items.size(); ++i) {
    place_.back() = std::to_string(i);
    write(tuple.items[i]);
  }
  place_.pop_back();
  opcode(kTuple);
}

void TorchPickler::ordered_dict() {
  global("collections", "OrderedDict");
  opcode(kEmptyTuple);
  opcode(kReduce);
}

void TorchPickler::write_held(const TorchDict& dict) {
  if (dict.kind() == TorchDictKind::ordered) {
    ordered_dict();
  } else {
    if (dict.kind() == TorchDictKind::counter) {
      global("collections", "Counter");
    }
    opcode(kEmptyDict);
  }
  opcode(kMark);
  place_.emplace_back();
  for (const auto& [key, value] : dict.entries()) {
    place_.back() = describe_key(key);
    std::visit([this](const auto& held) { write_held(held); }, key);
    write(value);
  }
  opcode(kSetItems);
  if (dict.kind() == TorchDictKind::counter) {
    opcode(kTuple1);
    opcode(kReduce);
  }
  if (dict.attributes() != nullptr) {
    place_.back() = "attributes";
    write(*dict.attributes());
    opcode(kBuild);
  }
  place_.pop_back();
}

void TorchPickler::check_tensor(const at::Tensor& tensor) const {
  if (tensor.layout() != c10::kStrided || tensor.is_quantized() ||
      tensor.is_nested() || tensor.is_meta() || !tensor.has_storage()) {
    refuse(
        "is a tensor that is sparse, quantised, nested or without values; "
        "save a dense one");
  }
  if (find_torch_dtype(tensor.scalar_type()) == nullptr) {
    refuse(c10::str(
        "is a tensor of ",
        tensor.scalar_type(),
        ", which Python does not save"));
  }
}

const TorchPickler::Stored& TorchPickler::stored(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  const auto [place, is_new] = numbers_.try_emplace(
      storage.unsafeGetStorageImpl(),
      Stored{storages_.size(), c10::ScalarType::Undefined});
  if (is_new) {
    storages_.push_back(storage);
    const TorchDtype* dtype = find_torch_dtype(tensor.scalar_type());
    if (dtype->storage != nullptr &&
        storage.nbytes() % tensor.element_size() == 0) {
      place->second.dtype = tensor.scalar_type();
    }
  }
  return place->second;
}

void TorchPickler::storage_id(
    const Stored& storage, const char* type, int64_t count) {
  opcode(kMark);
  text("storage");
  if (type != nullptr) {
    global("torch", type);
  } else {
    global("torch.storage", "UntypedStorage");
  }
  text(std::to_string(storage.number));
  text("cpu");
  write_held(count);
  opcode(kTuple);
  opcode(kBinPersId);
}

void TorchPickler::integers(c10::IntArrayRef values) {
  opcode(kMark);
  for (const int64_t value : values) {
    write_held(value);
  }
  opcode(kTuple);
}

void TorchPickler::write_held(const at::Tensor& given) {
  check_tensor(given);
  at::Tensor tensor = given;
  if (tensor.is_conj() || tensor.is_neg()) {
    tensor = tensor.resolve_conj().resolve_neg();
    resolved_.push_back(tensor);
  }
  const Stored& storage = stored(tensor);
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const TorchDtype& dtype = *find_torch_dtype(tensor.scalar_type());
  const bool typed = storage.dtype == dtype.type;
  global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  opcode(kMark);
  storage_id(
      storage,
      typed ? dtype.storage : nullptr,
      typed ? bytes / static_cast<int64_t>(tensor.element_size()) : bytes);
  write_held(static_cast<int64_t>(tensor.storage_offset()));
  integers(tensor.sizes());
  integers(tensor.strides());
  write_held(tensor.requires_grad());
  ordered_dict(); // hooks
  if (!typed) {
    global("torch", dtype.name);
  }
  opcode(kTuple);
  opcode(kReduce);
}

} // namespace ampkit::io
