#pragma once

#include <ampkit/diagnose/bisect.h>
#include <ampkit/export.h>
#include <ampkit/zoo/train/capsule_run.h>

namespace ampkit::zoo {

/// Overrides for open_capsule() with which its model has FP32 parameters and no
/// policy, as capsule_pass() needs it.
AMPKIT_API std::vector<std::string> capsule_pass_overrides();

/// Forward and backward pass of the step in a capsule, for bisect_precision()
/// and compare_precisions(): its weights, batches, random numbers, planted
/// faults and loss scale, in the precision and with the policy asked for.
///
///     auto run = zoo::open_capsule(capsule, zoo::capsule_pass_overrides());
///     const auto found = diagnose::bisect_precision(
///         *run.model.module, zoo::capsule_pass(run), {...});
///
/// `run` must outlive the result. Throws CheckpointError if the weights do not
/// fit.
AMPKIT_API diagnose::PrecisionRun capsule_pass(CapsuleRun& run);

} // namespace ampkit::zoo
