#include <c10/util/Exception.h>

#include <ampkit/io/torch_state.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// torch_copy IN OUT: reads a file of torch.save and writes what was in it.
void copy_torch_pickle(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "usage: torch_copy IN OUT");
  io::save_torch_state(args[1], io::load_torch_state(args[0]));
}

const Command kTorchCopy{"torch_copy", copy_torch_pickle};

} // namespace
} // namespace ampkit::oracle
