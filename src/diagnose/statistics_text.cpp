// What Statistics look like to people, and to TensorBoard.
#include <cmath>
#include <iomanip>
#include <sstream>

#include <ampkit/diagnose/statistics.h>

namespace ampkit::diagnose {
namespace {

std::string short_number(double value) {
  std::ostringstream out;
  out << std::setprecision(3) << value;
  return std::isfinite(value) ? out.str() : "-";
}

// float32 holds nearly anything: what is near its end is told of fp16, to which
// one might go.
c10::ScalarType narrow_dtype(const LayerStatistics& layer) {
  return layer.dtype == at::kBFloat16 ? at::kBFloat16 : at::kHalf;
}

} // namespace

std::string to_string(const std::vector<LayerStatistics>& layers) {
  std::ostringstream out;
  out << std::left << std::setw(28) << "module" << std::right << std::setw(10)
      << "amax" << std::setw(10) << "headroom" << std::setw(11) << "grad amax"
      << std::setw(11) << "subnormal" << std::setw(10) << "update"
      << std::setw(11) << "swallowed"
      << "\n";
  for (const auto& layer : layers) {
    const auto dtype = narrow_dtype(layer);
    out << std::left << std::setw(28)
        << (layer.module.empty() ? "(itself)" : layer.module) << std::right
        << std::setw(10) << short_number(layer.outputs.amax()) << std::setw(10)
        << short_number(layer.outputs.headroom_bits(dtype)) << std::setw(11)
        << short_number(layer.output_gradients.amax()) << std::setw(11)
        << short_number(layer.output_gradients.share_subnormal(dtype))
        << std::setw(10) << short_number(layer.update_ratio) << std::setw(11)
        << short_number(layer.swallowed) << "\n";
  }
  return out.str();
}

void add_statistics(
    io::EventFileWriter& events,
    const std::vector<LayerStatistics>& layers,
    int64_t step) {
  for (const auto& layer : layers) {
    const auto dtype = narrow_dtype(layer);
    const auto add = [&](const char* name, double value) {
      if (std::isfinite(value)) {
        events.add_scalar(
            std::string("statistics/") + name + "/" + layer.module,
            value,
            step);
      }
    };
    add("amax", layer.outputs.amax());
    add("headroom_bits", layer.outputs.headroom_bits(dtype));
    add("gradient_amax", layer.output_gradients.amax());
    add("gradient_subnormal", layer.output_gradients.share_subnormal(dtype));
    add("update_ratio", layer.update_ratio);
    add("swallowed", layer.swallowed);
  }
}

} // namespace ampkit::diagnose
