#pragma once

#include <stdexcept>

#include <CLI/App.hpp>
#include <CLI/Error.hpp>

#include "exit_codes.h"

namespace ampkit::app {

/// Each subcommand has a file that defines one of these: it adds the subcommand
/// with its options to `app`, and a callback that does the work. main() calls
/// them in the order in which --help shall list them.
///
/// A callback that returns means kDone. It reports a failure by an exception,
/// which main() prints once as "ampkit: error: ..." and turns into a status:
/// UsageError, c10::ValueError (zoo::ConfigError among them) and zoo::DataError
/// kUsage, CheckpointError
/// kCheckpoint, any other kFailed. To end with another status and no message,
/// throw CLI::RuntimeError(status).
void add_train_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_diagnose_command(CLI::App& app);
void add_bisect_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_rollout_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_ops_command(CLI::App& app);
void add_completion_command(CLI::App& app);

/// The user asked for what cannot be done.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace ampkit::app
