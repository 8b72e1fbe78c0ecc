#include "dist/slurm.h"

#include <charconv>
#include <regex>
#include <sstream>

namespace ampkit::dist {
namespace {

// Of text that a regular expression has matched as digits.
int slurm_number(const std::string& digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

} // namespace

std::string first_slurm_host(const std::string& list) {
  // A name, digits in brackets (the first of a range, the first of several),
  // and what stands behind: "rack[1-2]n[3,4]" has two of those.
  static const std::regex kPiece(R"(([\w.-]+)|\[(\d+)[\d,-]*\])");
  std::string host;
  auto rest = list;
  std::smatch piece;
  while (!rest.empty() && rest.front() != ',') {
    if (!std::regex_search(
            rest, piece, kPiece, std::regex_constants::match_continuous)) {
      return "";
    }
    host += piece[1].matched ? piece[1].str() : piece[2].str();
    rest = piece.suffix();
  }
  return host;
}

std::vector<int> slurm_tasks_per_node(const std::string& counts) {
  static const std::regex kPart(R"((\d{1,6})(?:\(x(\d{1,6})\))?)");
  std::vector<int> tasks;
  std::istringstream parts(counts);
  for (std::string part; std::getline(parts, part, ',');) {
    std::smatch match;
    if (!std::regex_match(part, match, kPart)) {
      return {};
    }
    const int times = match[2].matched ? slurm_number(match[2].str()) : 1;
    tasks.insert(tasks.end(), times, slurm_number(match[1].str()));
  }
  return tasks;
}

} // namespace ampkit::dist
