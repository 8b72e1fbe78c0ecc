#pragma once

#include <algorithm>

#include "train/config_keys.h"

namespace ampkit::zoo {

/// Another value that `key` allows.
struct ChangeOfKey {
  const Key& key;

  void operator()(bool* value) const { *value = !*value; }

  void operator()(int64_t* value) const { ++*value; }

  void operator()(double* value) const {
    const double before = *value;
    for (const double other : {before * 0.5, before + 0.125}) {
      if (other != before && key.range.contains(other)) {
        *value = other;
        return;
      }
    }
    throw std::logic_error(key.name);
  }

  void operator()(std::string* value) const {
    *value = *std::ranges::find_if(
        key.choices, [&](const auto& choice) { return choice != *value; });
  }

  void operator()(std::vector<double>* value) const { value->assign({0.625}); }
};

/// `config` with another value of the key of this name.
inline RunConfig changed(RunConfig config, const std::string& name) {
  const auto keys = keys_of(config);
  const auto& key = *std::ranges::find(keys, name, &Key::name);
  std::visit(ChangeOfKey{key}, key.target);
  return config;
}

/// Keys of a section that only some of its choices have.
inline std::vector<Key> owned_keys_of(
    RunConfig& config, const std::string& section) {
  auto keys = keys_of(config);
  std::erase_if(keys, [&](const Key& key) {
    return key.only_of.empty() || !key.name.starts_with(section + ".");
  });
  return keys;
}

} // namespace ampkit::zoo
