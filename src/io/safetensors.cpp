#include <ampkit/io/safetensors.h>

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <ampkit/error.h>

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "io/safetensors_format.h"

namespace ampkit::io {
namespace {

// A bool that is neither 0 nor 1 is undefined behaviour in every kernel.
void check_values(
    const std::string& path,
    const TensorInfo& info,
    std::span<const std::byte> bytes) {
  if (info.dtype != c10::ScalarType::Bool) {
    return;
  }
  const auto wrong = std::find_if(
      bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  AMPKIT_CHECK_CHECKPOINT(
      wrong == bytes.end(),
      "SafetensorsReader: ",
      path,
      ": tensor '",
      info.name,
      "' has a BOOL other than 0 and 1 at byte ",
      info.offset + static_cast<uint64_t>(wrong - bytes.begin()),
      " of the file");
}

at::Tensor copied(const TensorInfo& info, std::span<const std::byte> bytes) {
  at::Tensor result =
      at::empty(info.sizes, at::TensorOptions().dtype(info.dtype));
  if (!bytes.empty()) {
    std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  return result;
}

} // namespace

SafetensorsReader::SafetensorsReader(std::string path)
    : path_(std::move(path)),
      file_(std::make_shared<detail::MappedFile>("SafetensorsReader", path_)) {
  auto header = parse_safetensors_header(path_, file_->bytes());
  header_size_ = header.size;
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    places_.emplace(tensors_[i].name, i);
  }
}

bool SafetensorsReader::contains(std::string_view name) const {
  return places_.contains(name);
}

const TensorInfo& SafetensorsReader::info(std::string_view name) const {
  const auto place = places_.find(name);
  AMPKIT_CHECK_CHECKPOINT(
      place != places_.end(),
      "SafetensorsReader: ",
      path_,
      " has no tensor '",
      name,
      "' among its ",
      tensors_.size());
  return tensors_[place->second];
}

std::span<const std::byte> SafetensorsReader::bytes(
    std::string_view name) const {
  const auto& found = info(name);
  return std::span<const std::byte>(file_->bytes())
      .subspan(found.offset, found.byte_size);
}

std::span<const std::byte> SafetensorsReader::header_bytes() const {
  return std::span<const std::byte>(file_->bytes()).first(header_size_);
}

at::Tensor SafetensorsReader::view(std::string_view name) const {
  const auto& found = info(name);
  const auto values = bytes(name);
  check_values(path_, found, values);
  // The mapping begins at a page.
  if (values.empty() || found.offset % c10::elementSize(found.dtype) != 0) {
    return copied(found, values);
  }
  return at::from_blob(
      file_->bytes().data() + found.offset,
      found.sizes,
      [file = file_](void*) {},
      at::TensorOptions().dtype(found.dtype));
}

at::Tensor SafetensorsReader::copy(std::string_view name) const {
  const auto& found = info(name);
  const auto values = bytes(name);
  check_values(path_, found, values);
  return copied(found, values);
}

void save_safetensors(
    const std::string& path,
    const NamedTensors& tensors,
    const SafetensorsMetadata& metadata) {
  const SafetensorsLayout layout(tensors);
  const std::string header = layout.header(metadata);
  AtomicFile file(path);
  file.write_at(0, header);
  layout.write_values(
      file, header.size(), [](size_t, std::span<const std::byte>) {});
  file.commit();
}

NamedTensors load_safetensors(const std::string& path) {
  const SafetensorsReader reader(path);
  NamedTensors result;
  for (const auto& info : reader.tensors()) {
    result.emplace_back(info.name, reader.copy(info.name));
  }
  return result;
}

} // namespace ampkit::io
