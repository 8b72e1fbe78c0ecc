#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace ampkit::dist {

/// Runs `body(rank)` on a thread for each rank. Gives what each threw, or "".
inline std::vector<std::string> errors_of_ranks(
    int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return errors;
}

} // namespace ampkit::dist
