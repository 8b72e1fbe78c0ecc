#include "io/torch_dtypes.h"

#include <algorithm>
#include <iterator>

namespace ampkit::io {
namespace {

using c10::ScalarType;

// _dtype_to_storage_type_map() and _new_dtypes() of torch/storage.py.
constexpr TorchDtype kDtypes[] = {
    {ScalarType::Float, "float32", "FloatStorage"},
    {ScalarType::Double, "float64", "DoubleStorage"},
    {ScalarType::Half, "float16", "HalfStorage"},
    {ScalarType::BFloat16, "bfloat16", "BFloat16Storage"},
    {ScalarType::Long, "int64", "LongStorage"},
    {ScalarType::Int, "int32", "IntStorage"},
    {ScalarType::Short, "int16", "ShortStorage"},
    {ScalarType::Char, "int8", "CharStorage"},
    {ScalarType::Byte, "uint8", "ByteStorage"},
    {ScalarType::Bool, "bool", "BoolStorage"},
    {ScalarType::ComplexFloat, "complex64", "ComplexFloatStorage"},
    {ScalarType::ComplexDouble, "complex128", "ComplexDoubleStorage"},
    {ScalarType::Float8_e4m3fn, "float8_e4m3fn", nullptr},
    {ScalarType::Float8_e5m2, "float8_e5m2", nullptr},
    {ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz", nullptr},
    {ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz", nullptr},
    {ScalarType::Float8_e8m0fnu, "float8_e8m0fnu", nullptr},
    {ScalarType::Float4_e2m1fn_x2, "float4_e2m1fn_x2", nullptr},
    {ScalarType::ComplexHalf, "complex32", nullptr},
    {ScalarType::UInt16, "uint16", nullptr},
    {ScalarType::UInt32, "uint32", nullptr},
    {ScalarType::UInt64, "uint64", nullptr},
};

template <class Matches>
const TorchDtype* find(const Matches& matches) {
  const auto* place =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), matches);
  return place == std::end(kDtypes) ? nullptr : place;
}

} // namespace

const TorchDtype* find_torch_dtype(ScalarType type) {
  return find([&](const TorchDtype& dtype) { return dtype.type == type; });
}

const TorchDtype* find_torch_dtype(std::string_view name) {
  return find([&](const TorchDtype& dtype) { return dtype.name == name; });
}

const TorchDtype* find_torch_storage(std::string_view storage) {
  return find([&](const TorchDtype& dtype) {
    return dtype.storage != nullptr && dtype.storage == storage;
  });
}

} // namespace ampkit::io
