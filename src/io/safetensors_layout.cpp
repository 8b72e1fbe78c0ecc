#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include <nlohmann/json.hpp>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include "io/safetensors_format.h"

namespace ampkit::io {
namespace {

// The sizes as the format counts them.
std::vector<int64_t> format_sizes(const at::Tensor& tensor) {
  auto sizes = tensor.sizes().vec();
  if (tensor.scalar_type() == c10::ScalarType::Float4_e2m1fn_x2) {
    sizes.back() *= 2;
  }
  return sizes;
}

void check_tensor(const std::string& name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.defined(), "save_safetensors: tensor '", name, "' is undefined");
  TORCH_CHECK_VALUE(
      tensor.layout() == c10::Layout::Strided,
      "save_safetensors: tensor '",
      name,
      "' should be strided, got ",
      tensor.layout(),
      "; convert it with to_dense()");
  const auto dtype = tensor.scalar_type();
  TORCH_CHECK_VALUE(
      safetensors_dtype_name(dtype) != nullptr,
      "save_safetensors: tensor '",
      name,
      "' has the dtype ",
      dtype,
      ", which the format does not have; convert it or leave it out");
  TORCH_CHECK_VALUE(
      dtype != c10::ScalarType::Float4_e2m1fn_x2 || tensor.dim() > 0,
      "save_safetensors: tensor '",
      name,
      "' holds pairs of 4-bit values and should have a dimension, got a 0-d "
      "one; reshape it to [1]");
}

void check_tensors(const NamedTensors& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK_VALUE(
        !name.empty() && name != "__metadata__",
        "save_safetensors: '",
        name,
        "' is not a name that a tensor may have");
    TORCH_CHECK_VALUE(
        names.insert(name).second,
        "save_safetensors: the name '",
        name,
        "' is given twice");
    check_tensor(name, tensor);
  }
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(
        false,
        "save_safetensors: '",
        text,
        "' should be UTF-8: ",
        error.what());
  }
}

// The values in memory of the CPU, in order of the last dimension.
at::Tensor prepared(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

} // namespace

SafetensorsLayout::SafetensorsLayout(const NamedTensors& tensors)
    : tensors_(&tensors), order_(tensors.size()), offsets_(tensors.size()) {
  check_tensors(tensors);
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return tensors[a].second.element_size() > tensors[b].second.element_size();
  });
  uint64_t offset = 0;
  for (const size_t place : order_) {
    offsets_[place] = offset;
    offset += static_cast<uint64_t>(tensors[place].second.numel()) *
              static_cast<uint64_t>(tensors[place].second.element_size());
  }
}

std::string SafetensorsLayout::header(
    const SafetensorsMetadata& metadata) const {
  std::string text(8, '\0'); // the length, filled in below
  const char* separator = "{";
  if (!metadata.empty()) {
    text += "{\"__metadata__\":";
    for (const auto& [name, value] : metadata) {
      text += separator + quoted(name) + ":" + quoted(value);
      separator = ",";
    }
    text += "}";
    separator = ",";
  }
  for (size_t i = 0; i < tensors_->size(); ++i) {
    const auto& [name, tensor] = (*tensors_)[i];
    const uint64_t end =
        offsets_[i] + static_cast<uint64_t>(tensor.numel()) *
                          static_cast<uint64_t>(tensor.element_size());
    text += c10::str(
        separator,
        quoted(name),
        ":{\"dtype\":\"",
        safetensors_dtype_name(tensor.scalar_type()),
        "\",\"shape\":[",
        c10::Join(",", format_sizes(tensor)),
        "],\"data_offsets\":[",
        offsets_[i],
        ",",
        end,
        "]}");
    separator = ",";
  }
  text += text.size() == 8 ? "{}" : "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size() - 8;
  TORCH_CHECK_VALUE(
      length <= kMaxHeaderBytes,
      "save_safetensors: names and metadata take ",
      length,
      " bytes; the format allows ",
      kMaxHeaderBytes);
  std::memcpy(text.data(), &length, 8);
  return text;
}

void SafetensorsLayout::write_values(
    AtomicFile& file,
    uint64_t header_size,
    const std::function<void(size_t, std::span<const std::byte>)>& visit)
    const {
  for (const size_t place : order_) {
    const at::Tensor tensor = prepared((*tensors_)[place].second);
    const std::span bytes(
        static_cast<const std::byte*>(tensor.const_data_ptr()),
        tensor.nbytes());
    visit(place, bytes);
    file.write_at(header_size + offsets_[place], bytes);
  }
}

} // namespace ampkit::io
