#pragma once

#include <limits>

namespace ampkit {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

} // namespace ampkit
