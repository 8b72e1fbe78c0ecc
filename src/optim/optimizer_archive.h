#pragma once

#include <torch/serialize/archive.h>

#include <ampkit/io/state_dict.h>

namespace ampkit::optim {

/// The entries of `state` in an archive of torch::save().
void write_archive(
    torch::serialize::OutputArchive& archive, const io::StateDict& state);

/// What write_archive() wrote. Throws c10::Error for any other archive; `who`
/// opens the message.
io::StateDict read_archive(
    torch::serialize::InputArchive& archive, const char* who);

} // namespace ampkit::optim
