#pragma once

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace ampkit::zoo::detail {

/// Scales `picture` so that it just covers height x width, with an antialiased
/// bilinear filter, and writes the middle to `chw`, 3 planes. Gives the bytes
/// of Pillow's ImageOps.fit(picture, (width, height), Resampling.BILINEAR).
void fit(
    const Picture& picture,
    int64_t height,
    int64_t width,
    std::span<uint8_t> chw);

} // namespace ampkit::zoo::detail
