#pragma once

#include <span>
#include <string_view>

#include <c10/core/DeviceType.h>

namespace ampkit {

/// A group of ops and the reason that they share.
struct OpGroup {
  std::string_view reason;
  std::span<const std::string_view> ops;
};

/// What LibTorch runs in low precision on that device type; "name.overload".
std::span<const std::string_view> stock_lower_precision(c10::DeviceType device);

/// What LibTorch runs in the widest dtype of its inputs.
std::span<const std::string_view> stock_promote(c10::DeviceType device);

/// What LibTorch refuses to run in an autocast region.
std::span<const std::string_view> stock_refuse(c10::DeviceType device);

/// What the strict policy runs in float32 on every device, besides the stock
/// float32 lists of all device types.
std::span<const OpGroup> strict_float32();

/// Ops through which modules use parameters and that no list has.
std::span<const std::string_view> parameter_ops();

} // namespace ampkit
