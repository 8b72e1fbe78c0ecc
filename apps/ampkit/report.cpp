#include <ampkit/zoo/report/html_report.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include <c10/util/Exception.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"

namespace ampkit::app {
namespace {

struct ReportOptions {
  std::string run;
  std::string output;
};

void write_report(const ReportOptions& options) {
  const auto output = options.output.empty()
                          ? zoo::default_report_path(options.run)
                          : std::filesystem::path(options.output);
  try {
    zoo::write_html_report(options.run, output);
  } catch (const c10::ValueError& error) {
    throw UsageError(error.msg());
  }
  std::cout << output.string() << "\n";
}

} // namespace

void add_report_command(CLI::App& app) {
  const auto options = std::make_shared<ReportOptions>();
  auto* command = app.add_subcommand(
      "report",
      "Write the report of a run: curves, results, settings, machine");
  command->footer(
      R"(The report is one HTML file that needs no network; its name is printed. A run
that is still going has one too. Example:
  ampkit report runs/fashion-resnet --output /tmp/report.html)");
  command->add_option("run", options->run, "Folder of the run")
      ->required()
      ->check(CLI::ExistingDirectory)
      ->type_name("RUN");
  command
      ->add_option(
          "-o,--output", options->output, "Where to write; RUN/report.html")
      ->type_name("FILE");
  command->callback([options] { write_report(*options); });
}

} // namespace ampkit::app
