#include <ampkit/io/safetensors.h>

#include <c10/util/Exception.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// safetensors_copy IN OUT: what was read is written again, in its order.
void copy_safetensors(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "usage: safetensors_copy IN OUT");
  const io::SafetensorsReader reader(args[0]);
  io::NamedTensors tensors;
  for (const auto& info : reader.tensors()) {
    tensors.emplace_back(info.name, reader.view(info.name));
  }
  io::save_safetensors(args[1], tensors, reader.metadata());
}

const Command kSafetensorsCopy{"safetensors_copy", copy_safetensors};

} // namespace
} // namespace ampkit::oracle
