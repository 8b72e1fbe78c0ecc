#include <chrono>
#include <exception>
#include <iostream>
#include <map>
#include <vector>

#include <ATen/ATen.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

std::map<std::string, Registration::Make>& registry() {
  static std::map<std::string, Registration::Make> instance;
  return instance;
}

int usage() {
  std::cerr << "usage: ampkit_bench WORKER ARGUMENTS...\nworkers:";
  for (const auto& [name, make] : registry()) {
    std::cerr << " " << name;
  }
  std::cerr << "\n";
  return 2;
}

// Until standard input ends, as the Python side's serve().
void serve(Worker& worker) {
  std::cout << "ready" << std::endl;
  std::string request;
  while (std::getline(std::cin, request)) {
    const auto answer = request == "check"
                            ? worker.check()
                            : nlohmann::json{{"seconds", worker.run()}};
    std::cout << answer.dump() << std::endl;
  }
}

} // namespace

Registration::Registration(const char* name, Make make) {
  registry().emplace(name, make);
}

double seconds_per_call(const std::function<void()>& function, int64_t count) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    function();
  }
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(count);
}

nlohmann::json losses(const std::function<at::Tensor()>& step, int64_t count) {
  nlohmann::json values;
  for (int64_t i = 1; i <= count; ++i) {
    values["loss of step " + std::to_string(i)] = step().item<double>();
  }
  return values;
}

} // namespace ampkit::bench

int main(int argc, char** argv) {
  using namespace ampkit::bench;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto found =
      args.empty() ? registry().end() : registry().find(args.front());
  if (found == registry().end()) {
    return usage();
  }
  try {
    serve(*found->second(std::span(args).subspan(1)));
  } catch (const std::exception& error) {
    std::cerr << "ampkit_bench " << args.front() << ": " << error.what()
              << "\n";
    return 1;
  }
  return 0;
}
