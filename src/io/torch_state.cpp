#include <ampkit/error.h>
#include <ampkit/io/torch_state.h>

#include "io/pickle_machine.h"
#include "io/pickle_value.h"
#include "io/torch_archive.h"
#include "io/torch_globals.h"
#include "io/torch_pickler.h"
#include "io/zip_archive.h"

namespace ampkit::io {
namespace {

constexpr const char* kWho = "load_torch_state";
// A tensor takes about 200 bytes of it.
constexpr size_t kMostPickleBytes = size_t{256} << 20;

std::string text_of(const ZipArchive& archive, const char* name, bool verify) {
  const auto bytes = archive.record(name, verify);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_kind(const ZipArchive& archive, bool verify) {
  AMPKIT_CHECK_CHECKPOINT(
      !archive.contains("constants.pkl"),
      kWho,
      ": ",
      archive.path(),
      ": a TorchScript archive, as torch.jit.save and torch::save of C++ "
      "write; read it with torch::jit::load or torch::load");
  if (archive.contains("byteorder")) {
    const auto order = text_of(archive, "byteorder", verify);
    AMPKIT_CHECK_CHECKPOINT(
        order == "little",
        kWho,
        ": ",
        archive.path(),
        ": record 'byteorder' should be 'little', got '",
        order,
        "'");
  }
}

TorchValue read(const ZipArchive& archive, bool verify) {
  const auto pickle = archive.record("data.pkl", verify);
  if (pickle.size() > kMostPickleBytes) {
    throw PickleProblem("larger than 256 MiB");
  }
  PickleNodes nodes;
  TorchGlobals globals(archive, nodes, verify);
  const PickleNode* root = PickleMachine(pickle, nodes, globals).run();
  return to_torch_value(*root, pickle.size());
}

} // namespace

TorchValue load_torch_state(
    const std::string& path, const LoadTorchStateOptions& options) {
  const ZipArchive archive(kWho, path);
  check_kind(archive, options.verify_checksums);
  try {
    return read(archive, options.verify_checksums);
  } catch (const PickleProblem& problem) {
    AMPKIT_CHECK_CHECKPOINT(
        false, kWho, ": ", path, ": data.pkl: ", problem.what());
  }
}

void save_torch_state(const std::string& path, const TorchValue& value) {
  const TorchPickler pickler(value);
  write_torch_archive(path, pickler.pickle(), pickler.storages());
}

void save_torch_state(const std::string& path, const StateDict& state) {
  save_torch_state(path, to_torch_dict(state));
}

} // namespace ampkit::io
