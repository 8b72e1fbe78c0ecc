#include "report/machine_table.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/html.h"

namespace ampkit::zoo {
namespace {

using Json = nlohmann::json;
using Rows = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number()) {
    return format_number(value.get<double>());
  }
  if (!value.is_array()) {
    return "";
  }
  std::string joined;
  for (const auto& item : value) {
    joined += (joined.empty() ? "" : ", ") + text_of(item);
  }
  return joined;
}

std::string field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? "" : text_of(*found);
}

std::string gib(const Json& object, const char* name) {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  const auto found = object.find(name);
  return found == object.end() || !found->is_number() ||
                 found->get<double>() <= 0
             ? ""
             : fmt::format("{:.1f} GiB", found->get<double>() / kGib);
}

Rows general_rows(const Json& machine) {
  Rows rows;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      rows.emplace_back(name, value);
    }
  };
  add("ampkit", field(machine, "ampkit_version"));
  add("LibTorch", field(machine, "libtorch_version"));
  add("Libraries", field(machine, "libraries"));
  add("System", field(machine, "system"));
  add("Processor", field(machine, "processor"));
  add("Cores", field(machine, "logical_cores"));
  add("Usable cores", field(machine, "usable_cores"));
  add("Instruction sets", field(machine, "instruction_sets"));
  add("LibTorch kernels", field(machine, "libtorch_kernels"));
  add("Memory", gib(machine, "memory_bytes"));
  add("Memory limit", gib(machine, "memory_limit_bytes"));
  add("Threads", field(machine, "threads"));
  return rows;
}

/// One row a dtype: how it is computed, why, and how fast if that was measured.
std::string dtype_rows(const Json& dtypes) {
  Rows rows;
  for (const auto& support : dtypes) {
    if (!support.is_object()) {
      continue;
    }
    auto text = field(support, "path");
    if (const auto reason = field(support, "reason"); !reason.empty()) {
      text += ": " + reason;
    }
    const auto matmul = field(support, "matmul_gflops");
    const auto conv = field(support, "conv_gflops");
    if (!matmul.empty() || !conv.empty()) {
      text += fmt::format(
          " (GFLOP/s: matmul {}, convolution {})",
          matmul.empty() ? "-" : matmul,
          conv.empty() ? "-" : conv);
    }
    rows.emplace_back(field(support, "name"), text);
  }
  return html_table(rows);
}

} // namespace

std::string machine_table(std::string_view json) {
  const auto machine = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!machine.is_object()) {
    return "<p class=\"note\">machine.json cannot be read.</p>\n";
  }
  auto html = html_table(general_rows(machine));
  if (machine.contains("dtypes")) {
    html +=
        "<h3>Precision on the processor</h3>\n" + dtype_rows(machine["dtypes"]);
  }
  if (machine.contains("cuda_devices")) {
    for (const auto& device : machine["cuda_devices"]) {
      if (device.is_object()) {
        html += "<h3>" + escape_html(field(device, "name")) + "</h3>\n" +
                dtype_rows(device.value("dtypes", Json::array()));
      }
    }
  }
  return html;
}

} // namespace ampkit::zoo
