#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include <ampkit/io/state_dict.h>
#include <c10/util/Exception.h>

namespace ampkit::optim {

/// An option's values: finite, from `low` on, below `high`.
struct Range {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
};

constexpr Range kNotNegative{};
constexpr Range kBelowOne{0, 1};
constexpr Range kFinite{std::numeric_limits<double>::lowest()};

/// Each optimizer lists its options once, by calling a visitor for each:
/// `field("lr", o.lr, kNotNegative)`. Names in messages and state dicts are
/// these.

/// Throws c10::ValueError "AdamW: lr must be ..., got ..." for what is out of
/// range.
struct CheckFields {
  const char* who;

  void operator()(const char* name, double value, Range range) const {
    const bool bounded = std::isfinite(range.high);
    const bool any = range.low == kFinite.low;
    TORCH_CHECK_VALUE(
        std::isfinite(value) && value >= range.low && value < range.high,
        who,
        ": ",
        name,
        bounded ? c10::str(" must be in [", range.low, ", ", range.high, ")")
        : any   ? std::string(" must be finite")
                : c10::str(" must be finite and >= ", range.low),
        ", got ",
        value);
  }
  void operator()(
      const char* name, const std::optional<double>& value, Range range) const {
    if (value.has_value()) {
      (*this)(name, *value, range);
    }
  }
  void operator()(const char* name, int64_t value, Range range) const {
    (*this)(name, static_cast<double>(value), range);
  }
  void operator()(const char*, bool) const {}
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(const char*, Enum) const {}
};

struct SaveFields {
  io::StateDict& state;

  void operator()(const char* name, double value, Range) const {
    state.set(name, value);
  }
  /// -1, which is in no range of one, stands for none.
  void operator()(
      const char* name, const std::optional<double>& value, Range) const {
    state.set(name, value.value_or(-1));
  }
  void operator()(const char* name, int64_t value, Range) const {
    state.set(name, value);
  }
  void operator()(const char* name, bool value) const {
    state.set(name, value);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum value) const {
    state.set(name, static_cast<int64_t>(value));
  }
};

struct LoadFields {
  const io::StateDict& state;

  void operator()(const char* name, double& value, Range) const {
    value = state.real(name);
  }
  void operator()(const char* name, std::optional<double>& value, Range) const {
    const double saved = state.real(name);
    value = saved == -1 ? std::nullopt : std::optional(saved);
  }
  void operator()(const char* name, int64_t& value, Range) const {
    value = state.integer(name);
  }
  void operator()(const char* name, bool& value) const {
    value = state.boolean(name);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& value) const {
    value = static_cast<Enum>(state.integer(name));
  }
};

} // namespace ampkit::optim
