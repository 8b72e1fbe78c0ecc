#pragma once

#include <string_view>

#include <c10/core/ScalarType.h>

namespace ampkit::io {

/// How Python names a dtype in a pickle.
struct TorchDtype {
  c10::ScalarType type;
  /// "float32": an attribute of the module torch.
  const char* name;
  /// "FloatStorage"; nullptr for a dtype that is saved as an UntypedStorage.
  const char* storage;
};

/// nullptr if Python has no such dtype, or not in a plain tensor.
const TorchDtype* find_torch_dtype(c10::ScalarType type);
const TorchDtype* find_torch_dtype(std::string_view name);
const TorchDtype* find_torch_storage(std::string_view storage);

} // namespace ampkit::io
