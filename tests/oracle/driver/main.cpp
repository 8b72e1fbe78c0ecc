#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using RunCommand = void (*)(std::span<const std::string>);

std::map<std::string, RunCommand>& commands() {
  static std::map<std::string, RunCommand> instance;
  return instance;
}

} // namespace

Command::Command(const char* name, RunCommand run) {
  commands().emplace(name, run);
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  TORCH_CHECK(file, "oracle_driver: cannot read ", path);
  return nlohmann::json::parse(file);
}

void write_json(const std::string& path, const nlohmann::json& value) {
  std::ofstream file(path);
  file << value.dump();
  TORCH_CHECK(file.flush(), "oracle_driver: cannot write ", path);
}

} // namespace ampkit::oracle

int main(int argc, char** argv) {
  using ampkit::oracle::commands;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto found =
      args.empty() ? commands().end() : commands().find(args.front());
  if (found == commands().end()) {
    std::cerr << "usage: oracle_driver COMMAND ARGUMENTS...\ncommands:";
    for (const auto& command : commands()) {
      std::cerr << " " << command.first;
    }
    std::cerr << "\n";
    return 2;
  }
  // The same as torch.set_num_threads(1) on the Python side: sums are then
  // taken in the same order.
  at::set_num_threads(1);
  try {
    found->second(std::span(args).subspan(1));
  } catch (const std::exception& error) {
    std::cerr << "oracle_driver " << args.front() << ": " << error.what()
              << "\n";
    return 1;
  }
  return 0;
}
