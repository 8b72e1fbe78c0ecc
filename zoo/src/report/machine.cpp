#include <ampkit/zoo/report/machine.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <torch/version.h>

#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/version.h>

#include "report/assets.h"
#include "report/cuda_devices.h"
#include "report/dtype_support.h"
#include "report/host.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

using Capabilities = decltype(at::cpu::get_cpu_capabilities());

bool has_capability(const Capabilities& all, const std::string& name) {
  const auto found = all.find(name);
  return found != all.end() && found->second.isBool() && found->second.toBool();
}

int64_t count(const Capabilities& all, const std::string& name) {
  const auto found = all.find(name);
  return found != all.end() && found->second.isInt() ? found->second.toInt()
                                                     : 0;
}

int64_t cores_by_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails where there are more processors than the set can name.
  return sched_getaffinity(0, sizeof(set), &set) == 0
             ? CPU_COUNT(&set)
             : static_cast<int64_t>(std::thread::hardware_concurrency());
}

/// The folders of this process's control group and those around it: each can
/// set a limit. Of the second version; the first has no single place.
std::vector<fs::path> control_groups() {
  const fs::path root = "/sys/fs/cgroup";
  auto own = read_host_file("/proc/self/cgroup");
  std::vector<fs::path> folders{root};
  if (own.starts_with("0::/")) {
    auto folder = root;
    for (const auto& part : fs::path(own.substr(4, own.find('\n') - 4))) {
      folder /= part;
      folders.push_back(folder);
    }
  }
  return folders;
}

void add_processor(Machine& machine, const Capabilities& capabilities) {
  machine.processor = processor_name(read_host_file("/proc/cpuinfo"));
  const auto name = capabilities.find("cpu_name");
  if (machine.processor.empty() && name != capabilities.end() &&
      name->second.isString()) {
    machine.processor = name->second.toStringRef();
  }
  machine.physical_cores = count(capabilities, "num_physical_cores");
  machine.logical_cores = sysconf(_SC_NPROCESSORS_ONLN);
  machine.usable_cores = static_cast<double>(cores_by_affinity());
  machine.instruction_sets = instruction_sets([&](const std::string& set) {
    return has_capability(capabilities, set);
  });
  machine.libtorch_kernels = at::get_cpu_capability();
}

void add_memory(Machine& machine) {
  const auto meminfo = read_host_file("/proc/meminfo");
  machine.memory_bytes = meminfo_bytes(meminfo, "MemTotal");
  machine.memory_available_bytes = meminfo_bytes(meminfo, "MemAvailable");
}

void add_limits(Machine& machine) {
  for (const auto& folder : control_groups()) {
    if (const auto quota = cpu_quota(read_host_file(folder / "cpu.max"))) {
      machine.usable_cores = std::min(machine.usable_cores, *quota);
    }
    const auto limit = memory_limit(read_host_file(folder / "memory.max"));
    if (limit && *limit < machine.memory_bytes &&
        (machine.memory_limit_bytes == 0 ||
         *limit < machine.memory_limit_bytes)) {
      machine.memory_limit_bytes = *limit;
    }
  }
}

/// The first number with a dot in what LibTorch says of a library.
std::string version_in(const std::string& text) {
  const auto digit = [&](size_t i) {
    return i < text.size() &&
           std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    auto end = i;
    while (digit(end) || (end > i && text[end] == '.' && digit(end + 1))) {
      ++end;
    }
    if (text.substr(i, end - i).find('.') != std::string::npos) {
      return " " + text.substr(i, end - i);
    }
  }
  return "";
}

std::vector<std::string> libraries() {
  std::vector<std::string> names;
  if (at::hasMKLDNN()) {
    names.push_back("oneDNN" + version_in(at::get_mkldnn_version()));
  }
  if (at::hasMKL()) {
    names.push_back("MKL" + version_in(at::get_mkl_version()));
  }
  if (at::hasOpenMP()) {
    names.push_back("OpenMP" + version_in(at::get_openmp_version()));
  }
  for (auto& name : cuda_libraries()) {
    names.push_back(std::move(name));
  }
  return names;
}

void add_missing(Machine& machine) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
    machine.missing.push_back(
        {"Fashion-MNIST",
         "configs/fashion-*.toml find no data",
         "apt-get install dataset-fashion-mnist"});
  }
  if (chart_js().empty()) {
    machine.missing.push_back(
        {"Chart.js",
         "reports have no charts",
         "apt-get install libjs-chart.js, then configure and build again"});
  }
  if (!at::hasMKLDNN()) {
    machine.missing.push_back(
        {"oneDNN in LibTorch",
         "convolutions are slow, and no 16-bit unit is used",
         "use a LibTorch built with it, such as pip's torch"});
  }
  if (machine.cuda_devices.empty() && fs::exists("/dev/nvidiactl")) {
    machine.missing.push_back(
        {"CUDA",
         "the NVIDIA GPU of this machine is not used",
         at::hasCUDA()
             ? "nvidia-smi says whether the driver works"
             : "this LibTorch is for the processor only: use one for CUDA"});
  }
}

} // namespace

Machine collect_machine(const CollectMachineOptions& options) {
  install_cpu_16bit();
  const auto capabilities = at::cpu::get_cpu_capabilities();
  Machine machine;
  machine.ampkit_version = AMPKIT_VERSION;
  machine.libtorch_version = TORCH_VERSION;
  machine.libraries = libraries();
  machine.system = system_name();
  add_processor(machine, capabilities);
  add_memory(machine);
  add_limits(machine);
  std::array<double, 1> load{};
  if (getloadavg(load.data(), 1) == 1) {
    machine.load_average = load[0];
  }
  machine.threads = at::get_num_threads();
  machine.interop_threads = at::get_num_interop_threads();
  machine.dtypes = cpu_dtypes(
      [&](const std::string& name) {
        return has_capability(capabilities, name);
      },
      [](c10::ScalarType dtype) { return cpu_16bit(dtype); });
  machine.cuda_devices = cuda_devices();
  add_missing(machine);
  if (options.measure) {
    measure(machine.dtypes, at::kCPU);
    if (!machine.is_busy()) {
      for (auto& support : machine.dtypes) {
        correct_path(support, machine.dtypes.front());
      }
    }
    for (size_t i = 0; i < machine.cuda_devices.size(); ++i) {
      measure(
          machine.cuda_devices[i].dtypes,
          {at::kCUDA, static_cast<c10::DeviceIndex>(i)});
    }
  }
  return machine;
}

} // namespace ampkit::zoo
