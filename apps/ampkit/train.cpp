#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/zoo/train/config.h>
#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"

namespace ampkit::app {
namespace {

void print_keys() {
  std::string section;
  for (const auto& key : zoo::config_keys()) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      std::cout << "\n[" << section << "]\n";
    }
    std::cout << fmt::format(
        "{} = {}\n    {}; {}\n",
        key.name.substr(dot + 1),
        key.default_value,
        key.help,
        key.expected);
  }
}

} // namespace

void add_train_command(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Train a network");
  command->callback([] { print_keys(); });
}

} // namespace ampkit::app
