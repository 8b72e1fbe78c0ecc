#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/diagnose/magnitudes.h>
#include <ampkit/export.h>
#include <ampkit/io/event_file.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::diagnose {

/// What Statistics saw of one module with parameters of its own.
struct AMPKIT_API LayerStatistics {
  std::string module; ///< its path
  c10::ScalarType dtype = c10::ScalarType::Undefined; ///< of its results

  /// Of the last step that was looked at.
  Magnitudes outputs;
  Magnitudes output_gradients; ///< without the loss scale
  Magnitudes parameter_gradients; ///< without the loss scale
  Magnitudes weights;

  /// Largest magnitude of the outputs in the steps looked at, the latest last.
  std::vector<double> amax_history;

  /// |change of the weights| / |weights|, 2-norms, in the last update; about
  /// 1e-3 is usual. NaN if nothing is known of an update.
  double update_ratio = 0;
  /// Share, among the weights that the optimizer should have moved (their
  /// gradient is not 0), of those that came out of the update as they went in:
  /// rounding swallowed it.
  double swallowed = 0;
};

/// Settings of a Statistics.
struct StatisticsOptions {
  /// Steps from one that is looked at to the next; >= 1.
  int64_t interval = 100;
  /// Length of amax_history; >= 1.
  int64_t history = 64;
  /// What an update works on, where that is not the parameter: the FP32 master
  /// (optim::FusedOptimizer::master). An update that a master keeps is not
  /// lost, though the 16-bit parameter shows nothing of it yet.
  std::function<at::Tensor(const at::Tensor& parameter)> master = nullptr;
};

/// Counts, layer by layer, how large activations, gradients, weights and
/// updates are, so that it can be seen what is near the end of its dtype before
/// it is over it.
///
///     ampkit::diagnose::Statistics statistics(*model, {.interval = 100});
///     for (int64_t i = 0; i < steps; ++i) {
///       auto step = statistics.step(scaler.get_scale());
///       ... forward, scaler.scale(loss).backward() ...
///       step.before_update();
///       scaler.step(optimizer);
///       step.after_update();
///     }
///
/// Between the steps that are looked at it does nothing. Such a step reads
/// every output, gradient and weight once, on the host, and keeps a copy of the
/// weights during the update. Ops are seen on the thread of the step. The
/// module is not changed. Not thread-safe.
class AMPKIT_API Statistics {
 public:
  /// A step, looked at or not; ends with it.
  class AMPKIT_API Step {
   public:
    ~Step();
    Step(Step&& other) noexcept;
    Step& operator=(Step&&) = delete;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    bool looked_at() const;
    /// When gradients are complete, and not cleared.
    void before_update();
    /// Of a step that the scaler skipped: don't call it.
    void after_update();

   private:
    friend class Statistics;
    struct State;
    explicit Step(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Throws c10::ValueError, naming the field, if an option is out of range.
  explicit Statistics(
      const torch::nn::Module& module, const StatisticsOptions& options = {});
  ~Statistics();
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;
  Statistics(Statistics&&) = delete;
  Statistics& operator=(Statistics&&) = delete;

  /// The next step; they count from 0. `scale`: by which the loss, and so the
  /// gradients, are multiplied; > 0. Throws c10::Error if this thread has one
  /// that is looked at and has not ended.
  [[nodiscard]] Step step(double scale = 1);

  /// Modules with parameters, in the order of the network.
  const std::vector<LayerStatistics>& layers() const;

  /// From the gradients of all layers; see recommended_loss_scale().
  double recommended_scale() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// For TensorBoard, "statistics/<figure>/<module>" of each layer: amax,
/// headroom_bits, gradient_amax, gradient_subnormal, update_ratio, swallowed.
/// What is not known is left out. Headroom and subnormals are those of bf16
/// where results are bf16, else of fp16. Throws as the writer does.
AMPKIT_API void add_statistics(
    io::EventFileWriter& events,
    const std::vector<LayerStatistics>& layers,
    int64_t step);

/// The same figures as a table, a layer a line.
AMPKIT_API std::string to_string(const std::vector<LayerStatistics>& layers);

} // namespace ampkit::diagnose
