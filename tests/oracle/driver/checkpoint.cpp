#include <ampkit/io/checkpoint.h>

#include <c10/util/Exception.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// checkpoint_save IN OUT: the tensors of a safetensors file and a few scalars,
// as a checkpoint of ampkit.
void save_checkpoint(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "usage: checkpoint_save IN OUT");
  io::StateDict state;
  state.set("step", 3);
  for (const auto& [name, tensor] : io::load_safetensors(args[0])) {
    state.set(name, tensor);
  }
  state.set("scale", 65536.0);
  io::save_checkpoint(args[1], state, {{"epoch", "2"}});
}

const Command kCheckpointSave{"checkpoint_save", save_checkpoint};

} // namespace
} // namespace ampkit::oracle
