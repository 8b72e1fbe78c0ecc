#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include <ATen/record_function.h>

namespace ampkit::diagnose {

/// What an op's name and schema say of it.
struct OpTraits {
  /// All it does is call other ops.
  bool composite = false;
  /// Its output is not to be read: empty() and the like.
  bool uninitialised = false;
  /// It writes into an argument.
  bool writes = false;
  /// It cannot be run again: it writes into an argument, or draws numbers.
  bool once_only = false;
};

/// Looks traits up once for each op. Not thread-safe.
class OpTraitsCache {
 public:
  const OpTraits& of(const at::RecordFunction& fn);

 private:
  std::unordered_map<std::string, OpTraits> known_; // by name and overload
};

/// "aten::add_" is "add".
std::string_view base_name(std::string_view op);

} // namespace ampkit::diagnose
