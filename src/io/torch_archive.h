#pragma once

#include <span>
#include <string>

#include <c10/core/Storage.h>

namespace ampkit::io {

/// Writes the zip file of torch.save() around `pickle` and `storages`,
/// atomically. Storages of other devices are copied, one at a time. Throws
/// CheckpointError naming `path`.
void write_torch_archive(
    const std::string& path,
    const std::string& pickle,
    std::span<const c10::Storage> storages);

} // namespace ampkit::io
