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

constexpr std::array<Preset, 9> kPresets{{
    {"fp32", &Precision::fp32},
    {"fp16-mixed", &Precision::fp16_mixed},
    {"bf16-mixed", &Precision::bf16_mixed},
    {"fp16-master", &Precision::fp16_master},
    {"bf16-master", &Precision::bf16_master},
    {"bf16-split", &Precision::bf16_split},
    {"bf16-true", &Precision::bf16_true},
    {"fp16-true", &Precision::fp16_true},
    {"fp8-mixed", &Precision::fp8_mixed},
}};

constexpr std::array<std::pair<const char*, const char*>, 7> kAliases{{
    {"32-true", "fp32"},
    {"16-mixed", "fp16-mixed"},
    {"16-true", "fp16-true"},
    {"O0", "fp32"},
    {"O1", "fp16-mixed"},
    {"O2", "fp16-master"},
    {"O3", "fp16-true"},
}};

std::string valid_names() {
  std::ostringstream out;
  for (const auto& preset : kPresets) {
    out << (out.tellp() > 0 ? ", " : "") << preset.first;
  }
  out << " and the aliases ";
  for (const auto& [alias, preset] : kAliases) {
    out << (alias == kAliases.front().first ? "" : ", ") << alias << " ("
        << preset << ")";
  }
  return out.str();
}

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

Precision Precision::fp16_true() {
  return {
      .compute = ScalarType::Half,
      .parameters = ScalarType::Half,
      .reduce = ScalarType::Half};
}

Precision Precision::fp8_mixed() {
  return {.compute = ScalarType::Float8_e4m3fn, .scales_loss = true};
}

Precision Precision::parse(std::string_view name) {
  std::string_view preset = name;
  for (const auto& [alias, meant] : kAliases) {
    if (name == alias) {
      preset = meant;
    }
  }
  for (const auto& [preset_name, make] : kPresets) {
    if (preset == preset_name) {
      return make();
    }
  }
  TORCH_CHECK_VALUE(
      false,
      "Precision::parse: unknown precision '",
      name,
      "'; valid are ",
      valid_names());
}

std::vector<std::string> Precision::names() {
  std::vector<std::string> result;
  for (const auto& preset : kPresets) {
    result.emplace_back(preset.first);
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> Precision::aliases() {
  return {kAliases.begin(), kAliases.end()};
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
