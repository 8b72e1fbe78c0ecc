#pragma once

#include <vector>

namespace ampkit::dist {

/// A processor as the system counts them, and the core that it is part of.
struct Processor {
  int number = 0;
  int package = 0;
  int core = 0;
};

/// The processors that this process may use, those of one core side by side.
std::vector<Processor> usable_processors();

/// The cores of a rank and how many threads they are good for.
struct CoreShare {
  std::vector<int> processors; // empty: any
  int threads = 1;
};

/// A share of `processors` for each of `ranks`. With fewer cores than ranks
/// nobody is bound.
std::vector<CoreShare> share_cores(
    const std::vector<Processor>& processors, int ranks, bool bind);

} // namespace ampkit::dist
