#pragma once

#include <string>

#include <ampkit/export.h>
#include <ampkit/io/torch_value.h>

namespace ampkit::io {

/// Settings of load_torch_state().
struct LoadTorchStateOptions {
  /// Compare each record with its CRC-32, which torch.load does not. To be
  /// switched off for files written under
  /// torch.serialization.set_crc32_options(False), which have none.
  bool verify_checksums = true;
};

/// Reads a file of torch.save(): what torch.load(path, map_location="cpu",
/// weights_only=True) gives.
///
///     auto file = io::load_torch_state("model.pt");
///     io::load_module_state(*model, io::to_state_dict(file));
///     auto part = file.dict().at("model");      // of {"model": ..., ...}
///
/// Values: None, bool, int (64 bits), float, str, torch.dtype, lists, tuples,
/// dicts with int and str keys, OrderedDict with its attributes, Counter,
/// torch.Size (as a tuple), strided tensors of every dtype and parameters (as
/// tensors). Tensors are on the CPU, in memory of their own; those that were
/// views of one storage are so again, strides, offset and requires_grad
/// included.
///
/// Nothing of the file is ever run. Throws ampkit::CheckpointError, naming the
/// file, the record or the byte and opcode of the pickle, and what to do, if it
/// is truncated or damaged, nests deeper than 100 levels, or holds anything
/// else: sparse, quantised or meta tensors, classes, functions, whole modules.
/// Files from before PyTorch 1.6 and TorchScript archives (torch::save of C++
/// among them) are refused by name. Safe to call from many threads; the file
/// must not be truncated meanwhile (replace it by renaming).
///
/// Format: https://pytorch.org/docs/stable/notes/serialization.html
AMPKIT_API TorchValue load_torch_state(
    const std::string& path, const LoadTorchStateOptions& options = {});

/// Writes a file that torch.load(path, weights_only=True) accepts, with the
/// same values in the same order, atomically and durably as save_checkpoint()
/// does. A storage is written once, whole, whatever number of tensors are views
/// of it: tied and non-contiguous tensors come back as they are (clone a small
/// view of a large tensor to leave the rest out). Storages of other devices are
/// copied, one at a time, and are marked as "cpu".
///
/// Throws c10::ValueError, having written nothing, naming the entry, for a
/// tensor that is sparse, quantised or without values, a text that is not
/// UTF-8, or more than 100 levels; ampkit::CheckpointError if the file cannot
/// be written. Tensors are read while the call runs: don't change them from
/// another thread.
AMPKIT_API void save_torch_state(
    const std::string& path, const TorchValue& value);

/// The same for the state of a module: an OrderedDict.
AMPKIT_API void save_torch_state(
    const std::string& path, const StateDict& state);

} // namespace ampkit::io
