#include <ampkit/io/checkpoint.h>

#include <ampkit/error.h>

#include "io/atomic_file.h"
#include "io/checkpoint_entries.h"
#include "io/checksum.h"
#include "io/safetensors_format.h"

namespace ampkit::io {
namespace {

// Metadata of ours; docs/io.md describes them. Names and meaning are fixed.
constexpr const char* kFormat = "ampkit.format";
constexpr const char* kEntries = "ampkit.entries";
constexpr const char* kHeaderChecksum = "ampkit.header_xxh3";
constexpr const char* kReserved = "ampkit.";
constexpr const char* kVersion = "1";
const std::string kNoChecksum(16, '0');

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

NamedTensors tensors_of(const StateDict& state) {
  NamedTensors tensors;
  for (const auto& [name, value] : state.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      tensors.emplace_back(name, *tensor);
    }
  }
  return tensors;
}

// Where the digits of the header's own checksum stand in it, or npos. Inside a
// JSON text the quotes would be escaped, so that nothing else looks like this.
size_t checksum_place(const std::string& header) {
  const std::string key = std::string("\"") + kHeaderChecksum + "\":\"";
  const size_t place = header.find(key);
  if (place == std::string::npos ||
      place + key.size() + kNoChecksum.size() > header.size() ||
      header.find(key, place + 1) != std::string::npos) {
    return std::string::npos;
  }
  return place + key.size();
}

// `header` holds zeros in place of its checksum.
void seal(std::string& header) {
  const size_t place = checksum_place(header);
  TORCH_INTERNAL_ASSERT(place != std::string::npos);
  const std::string digits = checksum_text(checksum(as_bytes(header)));
  header.replace(place, digits.size(), digits);
}

void check_seal(const SafetensorsReader& reader) {
  const auto bytes = reader.header_bytes();
  std::string header(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t place = checksum_place(header);
  AMPKIT_CHECK_CHECKPOINT(
      place != std::string::npos,
      "load_checkpoint: the header of ",
      reader.path(),
      " has no checksum: it is damaged, or this is not a checkpoint of ampkit "
      "(SafetensorsReader reads those of others)");
  const std::string found = header.substr(place, kNoChecksum.size());
  header.replace(place, kNoChecksum.size(), kNoChecksum);
  const std::string expected = checksum_text(checksum(as_bytes(header)));
  AMPKIT_CHECK_CHECKPOINT(
      found == expected,
      "load_checkpoint: the header of ",
      reader.path(),
      " is damaged: its checksum is ",
      expected,
      ", got ",
      found);
}

const std::string& checked_entries(const SafetensorsReader& reader) {
  check_seal(reader);
  const auto& metadata = reader.metadata();
  const auto format = metadata.find(kFormat);
  const auto entries = metadata.find(kEntries);
  AMPKIT_CHECK_CHECKPOINT(
      format != metadata.end() && entries != metadata.end(),
      "load_checkpoint: the header of ",
      reader.path(),
      " lacks '",
      kFormat,
      "' or '",
      kEntries,
      "'");
  AMPKIT_CHECK_CHECKPOINT(
      format->second == kVersion,
      "load_checkpoint: ",
      reader.path(),
      " has format ",
      format->second,
      ", this version of ampkit reads ",
      kVersion);
  return entries->second;
}

SafetensorsMetadata user_metadata(const SafetensorsReader& reader) {
  SafetensorsMetadata result;
  for (const auto& [name, text] : reader.metadata()) {
    if (!name.starts_with(kReserved)) {
      result.emplace(name, text);
    }
  }
  return result;
}

// A damaged header may say anything of any tensor: the message names it.
SafetensorsReader open_checkpoint(const std::string& path) {
  try {
    return SafetensorsReader(path);
  } catch (const CheckpointError& error) {
    AMPKIT_CHECK_CHECKPOINT(
        false,
        "load_checkpoint: cannot read the header of ",
        path,
        ": ",
        error.msg());
    throw;
  }
}

at::Tensor verified_tensor(
    const SafetensorsReader& reader,
    const std::string& name,
    const std::string& expected) {
  // The copy is checked, not the file: what is handed out is what was verified.
  at::Tensor tensor = reader.copy(name);
  const std::string found = checksum_text(checksum(
      {static_cast<const std::byte*>(tensor.const_data_ptr()),
       tensor.nbytes()}));
  AMPKIT_CHECK_CHECKPOINT(
      found == expected,
      "load_checkpoint: tensor '",
      name,
      "' of ",
      reader.path(),
      " is damaged somewhere in bytes ",
      reader.info(name).offset,
      " to ",
      reader.info(name).offset + reader.info(name).byte_size,
      ": its checksum should be ",
      expected,
      ", got ",
      found);
  return tensor;
}

} // namespace

void save_checkpoint(
    const std::string& path,
    const StateDict& state,
    const SafetensorsMetadata& metadata) {
  for (const auto& item : metadata) {
    TORCH_CHECK_VALUE(
        !item.first.starts_with(kReserved),
        "save_checkpoint: metadata named '",
        item.first,
        "' is reserved; choose a name that does not begin with '",
        kReserved,
        "'");
  }
  const NamedTensors tensors = tensors_of(state);
  const SafetensorsLayout layout(tensors);
  std::vector<std::string> checksums(tensors.size(), kNoChecksum);
  SafetensorsMetadata all = metadata;
  all[kFormat] = kVersion;
  all[kHeaderChecksum] = kNoChecksum;
  all[kEntries] = write_entries(state, checksums);
  // The values are written first, past a header whose size is known: so each
  // tensor is copied from its device, hashed and written in one go.
  const size_t header_size = layout.header(all).size();
  AtomicFile file(path);
  layout.write_values(
      file, header_size, [&](size_t place, std::span<const std::byte> bytes) {
        checksums[place] = checksum_text(checksum(bytes));
      });
  all[kEntries] = write_entries(state, checksums);
  std::string header = layout.header(all);
  TORCH_INTERNAL_ASSERT(header.size() == header_size);
  seal(header);
  file.write_at(0, header);
  file.commit();
}

Checkpoint load_checkpoint(const std::string& path) {
  const SafetensorsReader reader = open_checkpoint(path);
  const auto entries = read_entries(path, checked_entries(reader));
  Checkpoint result;
  size_t tensor_count = 0;
  for (const auto& entry : entries) {
    AMPKIT_CHECK_CHECKPOINT(
        !result.state.contains(entry.name) && !entry.name.empty(),
        "load_checkpoint: the header of ",
        path,
        " lists '",
        entry.name,
        "' twice or without a name");
    if (entry.is_tensor) {
      ++tensor_count;
      result.state.set(
          entry.name, verified_tensor(reader, entry.name, entry.checksum));
    } else {
      result.state.set(entry.name, entry.scalar);
    }
  }
  AMPKIT_CHECK_CHECKPOINT(
      tensor_count == reader.tensors().size(),
      "load_checkpoint: ",
      path,
      " has ",
      reader.tensors().size(),
      " tensors, its header lists ",
      tensor_count);
  result.metadata = user_metadata(reader);
  return result;
}

SafetensorsMetadata load_checkpoint_metadata(const std::string& path) {
  const SafetensorsReader reader = open_checkpoint(path);
  checked_entries(reader);
  return user_metadata(reader);
}

} // namespace ampkit::io
