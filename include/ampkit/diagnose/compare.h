#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ampkit/amp/precision.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/diagnose/bisect.h>
#include <ampkit/diagnose/deviation.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::diagnose {

/// An op of the forward pass in two precisions.
struct OpComparison {
  std::string op; ///< "aten::linear"
  /// That whose parameter it uses, else that of the op before it.
  std::string module;
  bool uses_parameter = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined; ///< of its result
  Deviation output;
  /// Of the gradient that reached its result; none: none did.
  std::optional<Deviation> gradient;
  /// Relative error that the op itself adds: its result against float64 on the
  /// same arguments. NaN where the op cannot be run again.
  double added = 0;
  /// `output.relative` and `gradient->relative` of a second FP32 run that sums
  /// in another order: what lies near it says nothing about precision.
  double output_noise = 0;
  double gradient_noise = 0;
};

/// The ops of a module together.
struct LayerComparison {
  std::string module;
  /// The largest of its ops; infinity if one was not finite.
  double output = 0;
  double gradient = 0;
  /// The largest error that one of its ops adds.
  double added = 0;
};

/// From which relative error on an op departs. Gradients are noisier: what an
/// op gets has the errors of forward and backward in it.
struct DepartureBounds {
  double output = 0.05;
  double gradient = 0.25;
};

/// What compare_precisions() found.
struct AMPKIT_API Comparison {
  /// In the order in which they ran.
  std::vector<OpComparison> ops;
  /// Of each step, in FP32 and in low precision.
  std::vector<double> reference_losses;
  std::vector<double> losses;

  /// The first op whose result, or else the last whose gradient, is not finite,
  /// or off by more than its bound and more than ten times the noise; null:
  /// none.
  const OpComparison* first_departure(const DepartureBounds& bounds = {}) const;

  /// Modules, the one that adds most first.
  std::vector<LayerComparison> layers() const;
};

/// Settings of compare_precisions().
struct CompareOptions {
  c10::Device device = c10::kCPU;
  Precision precision = Precision::bf16_mixed();
  PrecisionPolicy policy;
  Precision against = Precision::fp32();
};

/// The same run in two precisions, op by op, forward and backward.
///
///     const auto comparison = ampkit::diagnose::compare_precisions(
///         *model, run, {.precision = ampkit::Precision::fp16_mixed()});
///     if (const auto* op = comparison.first_departure()) { ... }
///
/// `run` as for bisect_precision(), three times: `against` twice, the second
/// time with one thread and without oneDNN, and `precision`. Holds the results
/// and gradients of one run in memory. Ops count that run with gradients on, on
/// the calling thread, as code calls them; of several results the first.
///
/// Throws c10::Error, naming the op, if the runs differ in their ops, and what
/// `run` throws.
AMPKIT_API Comparison compare_precisions(
    const torch::nn::Module& module,
    const PrecisionRun& run,
    const CompareOptions& options = {});

/// The first departure and the `layers` layers that add most, for people.
AMPKIT_API std::string to_string(
    const Comparison& comparison,
    int layers = 10,
    const DepartureBounds& bounds = {});

/// Results of the modules that have parameters, by module path, as forward
/// hooks in Python see them: "h.0.ln_1"; of a module used again "h.0.ln_1#2".
/// Each is in its own dtype, on the CPU. To be saved with
/// io::save_safetensors(), or held against a dump of Python's.
AMPKIT_API io::StateDict record_activations(
    const torch::nn::Module& module,
    const PrecisionRun& run,
    const CompareOptions& options = {});

/// Two of these, held against each other by name.
struct ActivationComparison {
  struct Entry {
    std::string name;
    Deviation deviation;
  };
  std::vector<Entry> entries; ///< of both, in the order of the reference
  /// What could not be compared, a line each: what only one has, what has
  /// another shape.
  std::vector<std::string> left_out;

  /// The first entry that is not finite or off by more than `bound`; null:
  /// none.
  AMPKIT_API const Entry* first_departure(double bound = 0.05) const;
};

/// `value` against `reference`. Throws c10::Error, with what would be left
/// out, if nothing can be compared.
AMPKIT_API ActivationComparison
compare_activations(const io::StateDict& value, const io::StateDict& reference);

} // namespace ampkit::diagnose
