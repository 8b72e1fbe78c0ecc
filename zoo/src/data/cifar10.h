#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/zoo/data/image_dataset.h>

namespace ampkit::zoo::detail {

/// Reads files of the binary version of CIFAR-10 with so many images in each.
/// Throws DataError as open_cifar10() does.
std::shared_ptr<const ImageDataset> read_cifar10(
    const std::vector<std::string>& paths, int64_t images_per_file);

} // namespace ampkit::zoo::detail
