#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <c10/util/StringUtil.h>

#include <ampkit/error.h>

#include "io/safetensors_format.h"
#include "io/safetensors_json.h"

namespace ampkit::io {
namespace {

static_assert(
    std::endian::native == std::endian::little,
    "the format is little-endian, and values are copied as they are");

constexpr uint64_t kPrefixBytes = 8;

struct DtypeName {
  const char* name;
  c10::ScalarType dtype;
};

constexpr std::array kDtypes = {
    DtypeName{"BOOL", c10::ScalarType::Bool},
    DtypeName{"U8", c10::ScalarType::Byte},
    DtypeName{"I8", c10::ScalarType::Char},
    DtypeName{"U16", c10::ScalarType::UInt16},
    DtypeName{"I16", c10::ScalarType::Short},
    DtypeName{"U32", c10::ScalarType::UInt32},
    DtypeName{"I32", c10::ScalarType::Int},
    DtypeName{"U64", c10::ScalarType::UInt64},
    DtypeName{"I64", c10::ScalarType::Long},
    DtypeName{"F16", c10::ScalarType::Half},
    DtypeName{"BF16", c10::ScalarType::BFloat16},
    DtypeName{"F32", c10::ScalarType::Float},
    DtypeName{"F64", c10::ScalarType::Double},
    DtypeName{"C64", c10::ScalarType::ComplexFloat},
    DtypeName{"F8_E4M3", c10::ScalarType::Float8_e4m3fn},
    DtypeName{"F8_E5M2", c10::ScalarType::Float8_e5m2},
    DtypeName{"F8_E4M3FNUZ", c10::ScalarType::Float8_e4m3fnuz},
    DtypeName{"F8_E5M2FNUZ", c10::ScalarType::Float8_e5m2fnuz},
    DtypeName{"F8_E8M0", c10::ScalarType::Float8_e8m0fnu},
    DtypeName{"F4", c10::ScalarType::Float4_e2m1fn_x2},
};

// The sizes as LibTorch counts them.
std::vector<int64_t> checked_sizes(
    const std::string& where, const RawTensor& raw, c10::ScalarType dtype) {
  std::vector<int64_t> sizes;
  // Of max(size, 1), so that strides of an empty tensor do not overflow either.
  int64_t extent = static_cast<int64_t>(c10::elementSize(dtype));
  for (const uint64_t size : raw.shape) {
    const uint64_t factor = std::max<uint64_t>(size, 1);
    AMPKIT_CHECK_CHECKPOINT(
        factor <= INT64_MAX &&
            !__builtin_mul_overflow(
                extent, static_cast<int64_t>(factor), &extent),
        where,
        " has a shape beyond 64 bits: [",
        c10::Join(", ", raw.shape),
        "]");
    sizes.push_back(static_cast<int64_t>(size));
  }
  if (dtype == c10::ScalarType::Float4_e2m1fn_x2) {
    AMPKIT_CHECK_CHECKPOINT(
        !sizes.empty() && sizes.back() % 2 == 0,
        where,
        " is F4, whose last dimension should be even, got [",
        c10::Join(", ", raw.shape),
        "]");
    sizes.back() /= 2;
  }
  return sizes;
}

TensorInfo checked_tensor(
    const std::string& path,
    const RawTensor& raw,
    uint64_t header_size,
    uint64_t file_size) {
  const auto where =
      c10::str("SafetensorsReader: ", path, ": tensor '", raw.name, "'");
  const auto* entry =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& dtype) {
        return raw.dtype == dtype.name;
      });
  AMPKIT_CHECK_CHECKPOINT(
      entry != kDtypes.end(),
      where,
      " has the dtype '",
      raw.dtype,
      "', which LibTorch does not have");
  AMPKIT_CHECK_CHECKPOINT(
      raw.offsets.size() == 2,
      where,
      " should have two data_offsets, got ",
      raw.offsets.size());
  const uint64_t begin = raw.offsets[0];
  const uint64_t end = raw.offsets[1];
  AMPKIT_CHECK_CHECKPOINT(
      begin <= end && end <= file_size - header_size,
      where,
      " lies at bytes ",
      begin,
      " to ",
      end,
      " of the values, of which the file has ",
      file_size - header_size,
      "; it is truncated or damaged");
  TensorInfo info{
      .name = raw.name,
      .dtype = entry->dtype,
      .sizes = checked_sizes(where, raw, entry->dtype),
      .offset = header_size + begin,
      .byte_size = end - begin};
  uint64_t expected = c10::elementSize(info.dtype);
  for (const int64_t size : info.sizes) {
    expected *= static_cast<uint64_t>(size);
  }
  AMPKIT_CHECK_CHECKPOINT(
      expected == info.byte_size,
      where,
      " has ",
      info.byte_size,
      " bytes at byte ",
      info.offset,
      " of the file, but ",
      raw.dtype,
      " [",
      c10::Join(", ", raw.shape),
      "] needs ",
      expected);
  return info;
}

// The values must cover the rest of the file, each byte once.
void check_coverage(
    const std::string& path,
    const SafetensorsHeader& header,
    uint64_t file_size) {
  std::vector<const TensorInfo*> by_place;
  for (const auto& info : header.tensors) {
    by_place.push_back(&info);
  }
  std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->byte_size) <
           std::pair(b->offset, b->byte_size);
  });
  uint64_t end = header.size;
  for (const auto* info : by_place) {
    AMPKIT_CHECK_CHECKPOINT(
        info->offset == end,
        "SafetensorsReader: ",
        path,
        ": tensor '",
        info->name,
        "' begins at byte ",
        info->offset,
        " of the file, but the one before it ends at byte ",
        end,
        info->offset < end ? ": they overlap" : ": there is a gap");
    end = info->offset + info->byte_size;
  }
  AMPKIT_CHECK_CHECKPOINT(
      end == file_size,
      "SafetensorsReader: ",
      path,
      " has ",
      file_size,
      " bytes, but the tensors of its header end at byte ",
      end);
}

// The length of the header's text.
uint64_t checked_length(
    const std::string& path, std::span<const std::byte> file) {
  AMPKIT_CHECK_CHECKPOINT(
      file.size() >= kPrefixBytes,
      "SafetensorsReader: ",
      path,
      " has ",
      file.size(),
      " bytes; the length of the header alone takes 8");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kPrefixBytes);
  AMPKIT_CHECK_CHECKPOINT(
      length <= kMaxHeaderBytes && length <= file.size() - kPrefixBytes,
      "SafetensorsReader: ",
      path,
      " says at byte 0 that its header has ",
      length,
      " bytes, but the file has ",
      file.size(),
      " and the format allows ",
      kMaxHeaderBytes,
      "; it is truncated, damaged or not a safetensors file");
  return length;
}

} // namespace

const char* safetensors_dtype_name(c10::ScalarType dtype) {
  const auto* entry = std::find_if(
      kDtypes.begin(), kDtypes.end(), [&](const DtypeName& candidate) {
        return dtype == candidate.dtype;
      });
  return entry == kDtypes.end() ? nullptr : entry->name;
}

SafetensorsHeader parse_safetensors_header(
    const std::string& path, std::span<const std::byte> file) {
  const uint64_t length = checked_length(path, file);
  const auto* text = reinterpret_cast<const char*>(file.data()) + kPrefixBytes;
  RawHeader raw_header = parse_header_json(path, {text, length}, kPrefixBytes);
  SafetensorsHeader header;
  header.size = kPrefixBytes + length;
  header.metadata = std::move(raw_header.metadata);
  for (const auto& raw : raw_header.tensors) {
    header.tensors.push_back(
        checked_tensor(path, raw, header.size, file.size()));
  }
  check_coverage(path, header, file.size());
  return header;
}

} // namespace ampkit::io
