#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/precision.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/diagnose/minimal_set.h>
#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::diagnose {

/// What a run of one or several steps gave, to be held against FP32's.
struct RunOutcome {
  /// One for each step.
  std::vector<double> losses;
  /// By any order that is the same in every run: the gradients of the last
  /// step, unscaled, or weights after several. Undefined ones are passed over.
  std::vector<at::Tensor> values;
};

/// Runs a step, or several, from the same start each time: weights, optimizer,
/// batch and random numbers. `region` is what each Autocast in it is given;
/// nothing but its `modules` and `ops` may decide about dtypes.
using PrecisionRun = std::function<RunOutcome(
    c10::Device device,
    const Precision& precision,
    const AutocastOptions& region)>;

/// How far a run in low precision may be from FP32.
struct BisectBounds {
  /// |loss - FP32's| / |FP32's|, of every step; > 0.
  double loss = 0.01;
  /// |values - FP32's| / |FP32's|, Euclidean norms over all of them; > 0.
  double values = 0.1;
};

/// Settings of bisect_precision().
struct BisectOptions {
  c10::Device device = c10::kCPU;
  /// What is searched: its `compute` dtype is to be kept wherever possible.
  Precision precision = Precision::bf16_mixed();
  BisectBounds bounds;
  /// Patterns of the modules that are candidates; empty: every module that has
  /// parameters of its own.
  std::vector<std::string> layers = {};
  /// Limits, progress and earlier answers of the search over layers.
  MinimalSetOptions search;
  /// Whether ops are searched as well, with runs of their own.
  bool search_ops = true;
};

/// How a run compares with FP32.
struct RunError {
  bool finite = true;
  double loss = 0; ///< the largest of its steps; NaN if one was not finite
  double values = 0; ///< NaN if one was not finite
};

/// What bisect_precision() found.
struct Bisection {
  /// Layers that must run in FP32, by module path.
  MinimalSet layers;
  /// Ops that must run in FP32 in every layer, another cure; empty `chosen`
  /// with `none_helps`: no choice of ops is one.
  MinimalSet ops;
  /// Of the run in which no layer was held in FP32.
  RunError without;
  /// Of the run that proved `policy`.
  RunError with;
  /// The layers if they are a cure, else the ops; none if neither is.
  PrecisionPolicy policy;
};

/// The smallest set of layers, and the smallest set of ops, that must run in
/// FP32 for a run to stay finite and within bounds of FP32.
///
///     const auto found = ampkit::diagnose::bisect_precision(
///         *model, run, {.precision = ampkit::Precision::fp16_mixed()});
///     std::cout << to_string(found);
///     ampkit::save_precision_policy("cure.toml", found.policy);
///
/// `layers.end` is none_helps if even the run with every layer in FP32 is out
/// of bounds. Throws c10::ValueError if a bound is not positive or a pattern of
/// `layers` matches nothing; c10::Error if the run in FP32 itself is not
/// finite: then precision is not the cause; and what `run` throws.
AMPKIT_API Bisection bisect_precision(
    const torch::nn::Module& module,
    const PrecisionRun& run,
    const BisectOptions& options = {});

/// A PrecisionRun of one forward and backward pass: `loss` without an Autocast
/// of its own. Puts random numbers, buffers and gradients back. Gradients are
/// taken of loss * `loss_scale`, and divided by it in FP32.
///
/// `module` must outlive the result.
AMPKIT_API PrecisionRun single_pass(
    torch::nn::Module& module,
    std::function<at::Tensor()> loss,
    double loss_scale = 1);

/// Some lines for people.
AMPKIT_API std::string to_string(const Bisection& bisection);

} // namespace ampkit::diagnose
