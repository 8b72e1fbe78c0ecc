#include <ampkit/zoo/report/machine.h>

#include <iostream>
#include <memory>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"

namespace ampkit::app {

void add_doctor_command(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  auto* command = app.add_subcommand(
      "doctor", "Say what this machine can do, and what is missing");
  command->footer(
      R"(Measures each dtype with a matrix product and a convolution, which takes about
a second. "native": units of the processor or GPU compute the dtype. "through
FP32": ampkit converts, because LibTorch's own kernels would emulate. Other
programs that compute meanwhile make the figures too low.)");
  command->add_flag("--json", *json, "Print JSON instead of text");
  command->callback([json] {
    const auto machine = zoo::collect_machine({.measure = true});
    std::cout << (*json ? machine.to_json() : machine.to_text());
  });
}

} // namespace ampkit::app
