#include <ampkit/amp/precision.h>

#include <array>
#include <ostream>
#include <sstream>
#include <utility>

#include <c10/util/Exception.h>

namespace ampkit {
namespace {

using c10::ScalarType;
using Preset = std::pair<const char*, Precision (*)()>;

constexpr std::array<Preset, 8> kPresets{{
    {"fp32", &Precision::fp32},
    {"fp16-mixed", &Precision::fp16_mixed},
    {"bf16-mixed", &Precision::bf16_mixed},
    {"fp16-master", &Precision::fp16_master},
    {"bf16-master", &Precision::bf16_master},
    {"bf16-split", &Precision::bf16_split},
    {"bf16-true", &Precision::bf16_true},
    {"fp8-mixed", &Precision::fp8_mixed},
}};

} // namespace

Precision Precision::fp32() {
  return {};
}

Precision Precision::fp16_mixed() {
  return {.compute = ScalarType::Half, .scales_loss = true};
}

Precision Precision::bf16_mixed() {
  return {.compute = ScalarType::BFloat16};
}

Precision Precision::fp16_master() {
  return {
      .compute = ScalarType::Half,
      .parameters = ScalarType::Half,
      .master = ScalarType::Float,
      .scales_loss = true};
}

Precision Precision::bf16_master() {
  return {
      .compute = ScalarType::BFloat16,
      .parameters = ScalarType::BFloat16,
      .master = ScalarType::Float};
}

Precision Precision::bf16_split() {
  Precision precision = bf16_master();
  precision.split_master = true;
  return precision;
}

Precision Precision::bf16_true() {
  return {
      .compute = ScalarType::BFloat16,
      .parameters = ScalarType::BFloat16,
      .reduce = ScalarType::BFloat16};
}

Precision Precision::fp8_mixed() {
  return {.compute = ScalarType::Float8_e4m3fn, .scales_loss = true};
}

Precision Precision::parse(std::string_view name) {
  std::ostringstream valid;
  for (const auto& [preset_name, make] : kPresets) {
    if (name == preset_name) {
      return make();
    }
    valid << (valid.tellp() > 0 ? ", " : "") << preset_name;
  }
  TORCH_CHECK_VALUE(
      false,
      "Precision::parse: unknown precision '",
      name,
      "'; valid are ",
      valid.str());
}

std::vector<std::string> Precision::names() {
  std::vector<std::string> result;
  for (const auto& preset : kPresets) {
    result.emplace_back(preset.first);
  }
  return result;
}

std::string Precision::to_string() const {
  for (const auto& [name, make] : kPresets) {
    if (*this == make()) {
      return name;
    }
  }
  std::ostringstream out;
  out << "compute=" << compute << " parameters=" << parameters << " master=";
  if (master.has_value()) {
    out << *master << (split_master ? " (split)" : "");
  } else {
    out << "none";
  }
  out << " reduce=" << reduce << " buffers=" << buffers
      << " scales_loss=" << (scales_loss ? "true" : "false");
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const Precision& value) {
  return out << value.to_string();
}

} // namespace ampkit
