// The command line: parses, calls, and turns failures into a message and a
// status. What the commands do lies in the library and in zoo/.
#include <malloc.h>

#include <exception>
#include <iostream>
#include <new>
#include <string>

#include <ampkit/error.h>
#include <ampkit/version.h>
#include <ampkit/zoo/data/image_dataset.h>
#include <c10/util/Exception.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "command.h"

namespace ampkit::app {
namespace {

constexpr const char* kFooter = R"(Examples:
  ampkit train configs/fashion-resnet.toml
  ampkit train --help
  ampkit run --nproc-per-node 2 -- ./my_training

Exit status: 0 done, 1 training failed, 2 wrong usage, configuration or data,
3 checkpoint damaged or of another model, 4 another rank was lost, 130 interrupted
after saving.)";

int report_failure(const std::string& message, int status) {
  std::cerr << "ampkit: error: " << message << "\n";
  return status;
}

// Help and version go to stdout and are no failure.
int finish_parsing(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    return app.exit(error);
  }
  if (dynamic_cast<const CLI::RuntimeError*>(&error) != nullptr) {
    return error.get_exit_code();
  }
  const auto used = app.get_subcommands();
  const auto command = used.empty() ? "" : " " + used.front()->get_name();
  return report_failure(
      std::string(error.what()) + "; see `ampkit" + command + " --help`",
      kUsage);
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return kDone;
  } catch (const CLI::ParseError& error) {
    return finish_parsing(app, error);
  } catch (const UsageError& error) {
    return report_failure(error.what(), kUsage);
  } catch (const c10::ValueError& error) { // zoo::ConfigError among them
    return report_failure(error.msg(), kUsage);
  } catch (const zoo::DataError& error) {
    return report_failure(error.msg(), kUsage);
  } catch (const CheckpointError& error) {
    return report_failure(error.msg(), kCheckpoint);
  } catch (const c10::DistError& error) {
    return report_failure(error.what_without_backtrace(), kLostPeer);
  } catch (const c10::Error& error) {
    return report_failure(error.what_without_backtrace(), kFailed);
  } catch (const std::bad_alloc&) {
    return report_failure("out of memory", kFailed);
  } catch (const std::exception& error) {
    return report_failure(error.what(), kFailed);
  }
}

// A training step frees and allocates the same large blocks over and over. By
// default glibc gives them back to the system each time, and the page faults
// that follow cost small convolutional networks up to a third of a step.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024); // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 1024 * 1024 * 1024);
#endif
}

} // namespace
} // namespace ampkit::app

int main(int argc, char** argv) {
  ampkit::app::keep_freed_memory();
  CLI::App app("Mixed-precision training in C++.", "ampkit");
  app.set_version_flag("--version", "ampkit " AMPKIT_VERSION);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer(ampkit::app::kFooter);
  ampkit::app::add_train_command(app);
  ampkit::app::add_run_command(app);
  ampkit::app::add_report_command(app);
  ampkit::app::add_diagnose_command(app);
  ampkit::app::add_bisect_command(app);
  ampkit::app::add_compare_command(app);
  ampkit::app::add_rollout_command(app);
  ampkit::app::add_doctor_command(app);
  ampkit::app::add_ops_command(app);
  ampkit::app::add_completion_command(app);
  return ampkit::app::run(app, argc, argv);
}
