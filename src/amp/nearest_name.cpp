#include "amp/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace ampkit {
namespace {

// Levenshtein's, one row at a time.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min(
          {above + 1,
           row[j - 1] + 1,
           diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

} // namespace

std::string nearest_name(
    const std::string& typed, const std::vector<std::string>& known) {
  std::string best;
  size_t smallest = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const auto& name : known) {
    const auto gap = name.size() > typed.size() ? name.size() - typed.size()
                                                : typed.size() - name.size();
    if (gap >= smallest) {
      continue;
    }
    const auto found = distance(typed, name);
    if (found < smallest) {
      smallest = found;
      best = name;
    }
  }
  return best;
}

} // namespace ampkit
