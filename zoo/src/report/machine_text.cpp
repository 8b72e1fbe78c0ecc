#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ampkit/zoo/report/machine.h>

namespace ampkit::zoo {
namespace {

std::string gib(int64_t bytes) {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGib);
}

std::string or_unknown(const std::string& text) {
  return text.empty() ? "unknown" : text;
}

std::string speed(const std::optional<double>& gflops) {
  if (!gflops) {
    return "-";
  }
  constexpr double kWhole = 10; // from here on a decimal says nothing
  return *gflops < kWhole ? fmt::format("{:.1f}", *gflops)
                          : fmt::format("{:.0f}", *gflops);
}

std::string in_brackets(const Machine& machine) {
  return machine.libraries.empty()
             ? ""
             : fmt::format(" ({})", fmt::join(machine.libraries, ", "));
}

std::string cores(const Machine& machine) {
  auto text = fmt::format("{} logical", machine.logical_cores);
  if (machine.physical_cores > 0) {
    text = fmt::format("{} physical, {}", machine.physical_cores, text);
  }
  if (machine.usable_cores < static_cast<double>(machine.logical_cores)) {
    text += fmt::format(
        ", of which this process may use {:.3g}", machine.usable_cores);
  }
  return text;
}

std::string memory(const Machine& machine) {
  auto text = gib(machine.memory_bytes);
  if (machine.memory_limit_bytes > 0) {
    text += ", limited to " + gib(machine.memory_limit_bytes);
  }
  return text + ", available " + gib(machine.memory_available_bytes);
}

void add_dtype(std::string& out, const DtypeSupport& support) {
  out += fmt::format(
      "  {:<5} {:<22} {:>8} {:>13}   {}\n",
      support.name,
      to_string(support.path),
      speed(support.matmul_gflops),
      speed(support.conv_gflops),
      support.reason);
  if (support.stock_matmul_gflops || support.stock_conv_gflops) {
    out += fmt::format(
        "  {:<5} {:<22} {:>8} {:>13}\n",
        "",
        "  LibTorch's own",
        speed(support.stock_matmul_gflops),
        speed(support.stock_conv_gflops));
  }
}

void add_dtypes(
    std::string& out,
    const std::string& device,
    const std::vector<DtypeSupport>& dtypes) {
  const bool measured = std::any_of(
      dtypes.begin(), dtypes.end(), [](const DtypeSupport& support) {
        return support.matmul_gflops.has_value();
      });
  out += fmt::format("\nPrecision on {}\n", device);
  out += fmt::format(
      "  {:<5} {:<22} {:>8} {:>13}   {}\n",
      "dtype",
      "computed",
      "matmul",
      "convolution",
      measured ? "GFLOP/s, and why" : "(not measured) why");
  for (const auto& support : dtypes) {
    add_dtype(out, support);
  }
}

void add_load(std::string& out, const Machine& machine) {
  if (machine.is_busy()) {
    out += fmt::format(
        "\nOther programs are computing (load average {:.1f} on {:.3g} cores): "
        "speeds measured\nnow are too low, some more than others.\n",
        machine.load_average,
        machine.usable_cores);
  }
}

void add_missing(std::string& out, const std::vector<MissingPart>& missing) {
  if (missing.empty()) {
    out += "\nNothing is missing.\n";
    return;
  }
  out += "\nMissing\n";
  for (const auto& part : missing) {
    out +=
        fmt::format("  {}: {}\n    {}\n", part.name, part.effect, part.remedy);
  }
}

/// What decides how fast a run is, first; "bf16 native" needs no reason.
std::string short_dtypes(const std::vector<DtypeSupport>& dtypes) {
  std::vector<std::string> parts;
  for (const auto& support : dtypes) {
    auto part = support.name + " " + to_string(support.path);
    if (support.path == DtypePath::through_fp32) {
      part += " (" + support.reason + ")";
    }
    parts.push_back(part);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

} // namespace

std::string to_string(DtypePath path) {
  switch (path) {
    case DtypePath::native:
      return "native";
    case DtypePath::through_fp32:
      return "through FP32";
    case DtypePath::emulated:
      return "emulated (stock, slow)";
    case DtypePath::missing:
      break;
  }
  return "missing";
}

std::string Machine::to_text_short() const {
  auto out = fmt::format(
      "ampkit {}, LibTorch {} on {}, {:.3g} cores, {} threads, {}\n",
      ampkit_version,
      libtorch_version,
      or_unknown(processor),
      usable_cores,
      threads,
      gib(memory_bytes));
  out += "processor: " + short_dtypes(dtypes) + "\n";
  if (cuda_devices.size() == 1) {
    const auto& device = cuda_devices.front();
    out += device.name + ": " + short_dtypes(device.dtypes) + "\n";
  } else if (!cuda_devices.empty()) {
    out += fmt::format(
        "{} CUDA devices, the first: {}: {}\n",
        cuda_devices.size(),
        cuda_devices.front().name,
        short_dtypes(cuda_devices.front().dtypes));
  }
  if (!missing.empty()) {
    std::vector<std::string> names;
    for (const auto& part : missing) {
      names.push_back(part.name);
    }
    out += fmt::format(
        "missing: {} (see: ampkit doctor)\n", fmt::join(names, ", "));
  }
  return out;
}

std::string Machine::to_text() const {
  auto out = fmt::format(
      "ampkit {}, LibTorch {}{}\n\n",
      ampkit_version,
      libtorch_version,
      in_brackets(*this));
  const auto add = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<18}{}\n", name, value);
  };
  add("System", or_unknown(system));
  add("Processor", or_unknown(processor));
  add("Cores", cores(*this));
  add("Instruction sets",
      or_unknown(fmt::format("{}", fmt::join(instruction_sets, ", "))));
  add("LibTorch kernels", or_unknown(libtorch_kernels));
  add("Memory", memory(*this));
  add("Threads",
      fmt::format("{} inside an op, {} between ops", threads, interop_threads));
  add_dtypes(out, "the processor", dtypes);
  for (const auto& device : cuda_devices) {
    add_dtypes(
        out,
        fmt::format(
            "{} (CUDA, compute capability {}, {})",
            device.name,
            device.compute_capability,
            gib(device.memory_bytes)),
        device.dtypes);
  }
  if (cuda_devices.empty()) {
    out += "\nNo CUDA device.\n";
  }
  add_load(out, *this);
  add_missing(out, missing);
  return out;
}

} // namespace ampkit::zoo
