#pragma once

#include <ampkit/io/state_dict.h>

namespace ampkit::io {

/// Whether both are the same scalar of the same type; false for tensors.
inline bool same_scalar(const StateValue& a, const StateValue& b) {
  const auto same = [&]<class T>(const T* first) {
    const T* second = std::get_if<T>(&b);
    return first != nullptr && second != nullptr && *first == *second;
  };
  return same(std::get_if<int64_t>(&a)) || same(std::get_if<double>(&a)) ||
         same(std::get_if<bool>(&a)) || same(std::get_if<std::string>(&a));
}

} // namespace ampkit::io
