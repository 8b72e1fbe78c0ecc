#include "train/memory.h"

#include <fstream>

#include <unistd.h>

namespace ampkit::zoo {

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0;
  double resident = 0; // pages
  if (!(file >> size >> resident)) {
    return 0;
  }
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

} // namespace ampkit::zoo
