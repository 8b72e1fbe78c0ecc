#include "dist/core_binding.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

namespace ampkit::dist {
namespace {

int topology(int processor, const char* what, int otherwise) {
  std::ifstream file(
      "/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/" +
      what);
  int value = 0;
  return file >> value ? value : otherwise;
}

bool same_core(const Processor& a, const Processor& b) {
  return a.package == b.package && a.core == b.core;
}

} // namespace

std::vector<Processor> usable_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  std::vector<Processor> found;
  if (::sched_getaffinity(0, sizeof(usable), &usable) == 0) {
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &usable)) {
        found.push_back(
            {number,
             topology(number, "physical_package_id", 0),
             topology(number, "core_id", number)});
      }
    }
  }
  std::ranges::sort(found, {}, [](const Processor& p) {
    return std::tuple(p.package, p.core, p.number);
  });
  return found;
}

std::vector<CoreShare> share_cores(
    const std::vector<Processor>& processors, int ranks, bool bind) {
  std::vector<std::vector<int>> cores;
  for (size_t i = 0; i < processors.size(); ++i) {
    if (i == 0 || !same_core(processors[i - 1], processors[i])) {
      cores.emplace_back();
    }
    cores.back().push_back(processors[i].number);
  }
  const auto count = static_cast<int>(cores.size());
  std::vector<CoreShare> shares(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    auto& share = shares[static_cast<size_t>(rank)];
    const int begin = rank * count / ranks;
    const int end = (rank + 1) * count / ranks;
    share.threads = std::max(1, end - begin);
    for (int core = begin; bind && count >= ranks && core < end; ++core) {
      const auto& numbers = cores[static_cast<size_t>(core)];
      share.processors.insert(
          share.processors.end(), numbers.begin(), numbers.end());
    }
  }
  return shares;
}

} // namespace ampkit::dist
