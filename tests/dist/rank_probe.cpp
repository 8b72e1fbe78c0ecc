// A rank, for the tests of whole programs: finds the others, adds up a tensor
// with them, and prints one line of JSON.
//
//   rank_probe [SECONDS]            the time limit of the start; 60
//   rank_probe SECONDS FILE         and waits, connected, until FILE is there

#include <filesystem>
#include <iostream>
#include <thread>

#include <ampkit/dist/context.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace {

void run(int argc, char** argv) {
  const auto seconds = argc > 1 ? std::stoi(argv[1]) : 60;
  const auto context = ampkit::dist::init(
      {.timeout = std::chrono::seconds(60),
       .start_timeout = std::chrono::seconds(seconds)});
  std::vector<at::Tensor> sum{at::full({1}, context.rank() + 1.0)};
  context.process_group()->allreduce(sum)->wait();
  const nlohmann::json line{
      {"launcher", to_string(context.environment().launcher)},
      {"rank", context.rank()},
      {"world_size", context.world_size()},
      {"local_rank", context.local_rank()},
      {"local_world_size", context.environment().local_world_size},
      {"restart_count", context.environment().restart_count},
      {"sum", sum.front().item<double>()}};
  std::cout << line.dump() + "\n" << std::flush;
  while (argc > 2 && !std::filesystem::exists(argv[2])) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  context.barrier();
}

} // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
  }
  return 1;
}
