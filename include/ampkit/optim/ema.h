#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::optim {

/// Settings of an ExponentialMovingAverage.
struct ExponentialMovingAverageOptions {
  /// Part of the average that each update keeps; in [0, 1].
  double decay = 0.999;
  /// Average buffers (running statistics) too. false: evaluation uses the
  /// module's present ones.
  bool use_buffers = false;
};

/// Moving averages of a module's weights, as Python's
/// AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers):
/// the first update copies, each later one moves the averages by 1 - decay of
/// the way to the weights.
///
///     ExponentialMovingAverage ema(*model, {.decay = 0.999});
///     ...
///     ema.update();   // after each optimizer step
///     ...
///     {
///       auto averaged = ema.swap_in();
///       evaluate(*model);   // with the averages
///     }
///
/// Averages of 16-bit weights are fp32, since 16 bits would absorb the small
/// moves; integer buffers are averaged and truncated as in Python. Tied
/// parameters count once. Does not wait for the device. Not thread-safe.
class AMPKIT_API ExponentialMovingAverage {
 public:
  /// Takes the tensors that `module` has now. Throws c10::ValueError if `decay`
  /// is out of range or there is no parameter.
  explicit ExponentialMovingAverage(
      const torch::nn::Module& module,
      const ExponentialMovingAverageOptions& options = {});

  /// Throws c10::Error while the averages are swapped in.
  void update();

  /// While it lives, the module holds the averages, rounded to its dtypes; then
  /// what it held before, to the last bit. Before the first update it changes
  /// nothing.
  class AMPKIT_API Swap {
   public:
    Swap(Swap&& other) noexcept;
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;
    Swap& operator=(Swap&&) = delete;
    ~Swap();

   private:
    friend class ExponentialMovingAverage;
    explicit Swap(ExponentialMovingAverage& owner);
    ExponentialMovingAverage* owner_;
    std::vector<at::Tensor> weights_;
  };

  /// Throws c10::Error if they are swapped in already. The result must not
  /// outlive this object.
  [[nodiscard]] Swap swap_in();

  /// Updates so far.
  int64_t updates() const { return updates_; }

  /// Number of updates and averages, under the names of the module. Tensors are
  /// shared: to freeze them, clone.
  io::StateDict state_dict() const;

  /// Throws c10::Error, having changed nothing, with all that does not fit.
  void load_state_dict(const io::StateDict& state);

 private:
  struct Entry {
    std::string name;
    at::Tensor source; // of the module
    at::Tensor average;
  };

  void add(const std::string& name, const at::Tensor& source);
  void move_averages();
  std::string misfits(const io::StateDict& state) const;

  ExponentialMovingAverageOptions options_;
  std::vector<Entry> entries_;
  int64_t updates_ = 0;
  bool swapped_ = false;
};

} // namespace ampkit::optim
