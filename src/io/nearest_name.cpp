#include <ampkit/io/nearest_name.h>

#include <algorithm>
#include <numeric>

namespace ampkit {
namespace {

using Row = std::vector<size_t>;

// Levenshtein's, with swaps of neighbours, two rows back.
size_t mistakes(const std::string& a, const std::string& b) {
  Row before(b.size() + 1);
  Row last(b.size() + 1);
  Row row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min(
          {last[j] + 1,
           row[j - 1] + 1,
           last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
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
    const auto found = mistakes(typed, name);
    if (found < smallest) {
      smallest = found;
      best = name;
    }
  }
  return best;
}

} // namespace ampkit
