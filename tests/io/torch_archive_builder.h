#pragma once

#include <string>
#include <utility>
#include <vector>

#include <caffe2/serialize/inline_container.h>

namespace ampkit::io {

/// Writes the zip file of torch.save() with any pickle in it.
inline void build_torch_archive(
    const std::string& path,
    const std::string& pickle,
    const std::vector<std::pair<std::string, std::string>>& records = {}) {
  caffe2::serialize::PyTorchStreamWriter writer(path);
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  for (const auto& [name, bytes] : records) {
    writer.writeRecord(name, bytes.data(), bytes.size());
  }
  writer.writeEndOfFile();
}

/// Pieces of a pickle, of protocol 2.
namespace pickle {

inline std::string text(const std::string& value) {
  return std::string("X") + static_cast<char>(value.size()) +
         std::string(3, '\0') + value;
}

/// Up to 4 bytes, little-endian.
inline std::string integer(uint32_t value) {
  std::string bytes = "J";
  for (int shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>((value >> shift) & 0xFFU);
  }
  return bytes;
}

inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

inline std::string whole(const std::string& value) {
  return "\x80\x02" + value + ".";
}

/// A tensor of floats over the record "data/0" of `count` values.
inline std::string tensor(
    uint32_t count,
    uint32_t offset,
    const std::string& sizes,
    const std::string& strides,
    const std::string& type = "FloatStorage") {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") +
         global("torch", type) + text("0") + text("cpu") + integer(count) +
         "tQ" + integer(offset) + "(" + sizes + "t(" + strides + "t\x89" +
         global("collections", "OrderedDict") + ")RtR";
}

} // namespace pickle
} // namespace ampkit::io
