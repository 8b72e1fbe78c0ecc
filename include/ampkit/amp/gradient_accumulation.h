#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit {

/// Settings of a GradientAccumulation.
struct GradientAccumulationOptions {
  /// Micro-batches that make one step; >= 1.
  int64_t micro_batches = 1;
  /// Whether gradients of fp16 and bf16 parameters are fp32 tensors. In 16 bits
  /// a sum of many small gradients stops growing: in bf16, 256 + 1 is 256.
  /// Not under DistributedDataParallel, whose Reducer wants the parameters'
  /// dtype: there, turn it off, or leave it out and sum the window's gradients
  /// by dist::sum_over_ranks().
  bool fp32_gradients = true;
  /// Samples or tokens of a full window, over all ranks, roughly: weigh()
  /// divides by the next power of two. 0: that of the window's first
  /// micro-batch times `micro_batches`.
  int64_t expected_count = 0;
  /// Data parallel, for ranks that see different numbers of samples: sums a
  /// count (int64 []) over the ranks and returns it. Called once by finish().
  /// `expected_count` must be given, so that all ranks divide by the same.
  std::function<at::Tensor(const at::Tensor& count)> sum_over_ranks;
  /// Over how many ranks the gradients are averaged before finish(): the world
  /// size under DistributedDataParallel. 1: they are summed; >= 1.
  int64_t averaged_over = 1;
};

/// Several backward passes before one step, with the gradient of the mean loss
/// over all their samples, whatever the sizes of the micro-batches: the mean of
/// means would give a sample of a small one more weight.
///
///     ampkit::GradientAccumulation window(
///         model->parameters(), {.micro_batches = 8});
///     for (auto& batch : loader) {
///       torch::Tensor loss;   // sum over the tokens, not their mean
///       {
///         ampkit::Autocast autocast(device, precision);
///         loss = torch::cross_entropy_loss(
///             model->forward(batch.input), batch.target, {},
///             at::Reduction::Sum);
///       }
///       scaler.scale(window.weigh(loss, batch.target.numel())).backward();
///       if (window.full() || batch.last) {
///         window.finish();
///         scaler.step(optimizer, {.max_norm = 1.0});
///         scaler.update();
///         optimizer.zero_grad();
///       }
///     }
///
/// The sum over the window is known only at its end, and a sum of losses has
/// gradients too large for fp16. So weigh() divides by a power of two near the
/// number to be expected, which is exact, and finish() by what remains, which
/// is in (0.5, 1] for a full window of equal micro-batches. A gradient that
/// overflows in any micro-batch stays non-finite, so that GradScaler::step()
/// gives up the window as a whole.
///
/// Not thread-safe. Nothing waits for the device.
class AMPKIT_API GradientAccumulation {
 public:
  /// `parameters`: those whose gradients are summed, each once or more often.
  /// Throws c10::ValueError if an option is out of range or misses another;
  /// c10::Error if a 16-bit parameter already has a 16-bit gradient, which
  /// fp32_gradients can't replace.
  explicit GradientAccumulation(
      const std::vector<at::Tensor>& parameters,
      GradientAccumulationOptions options = {});

  /// 16-bit parameters get 16-bit gradients again, at the next backward pass
  /// after their present ones are cleared.
  ~GradientAccumulation();
  GradientAccumulation(const GradientAccumulation&) = delete;
  GradientAccumulation(GradientAccumulation&&) = delete;
  GradientAccumulation& operator=(const GradientAccumulation&) = delete;
  GradientAccumulation& operator=(GradientAccumulation&&) = delete;

  /// `loss_sum`, the loss summed over `count` samples or tokens, in the weight
  /// that it has in the window, in fp32 (FP64 for an FP64 loss). Counts as one
  /// micro-batch. `count` may be 0 (a batch of padding), if the loss is 0 then.
  /// Throws c10::ValueError if `count` < 0, c10::Error if the window is full.
  at::Tensor weigh(const at::Tensor& loss_sum, int64_t count);

  /// The same for a loss that is the mean over `count` samples or tokens; > 0,
  /// since the mean over nothing is NaN.
  at::Tensor weigh_mean(const at::Tensor& loss_mean, int64_t count);

  /// Whether micro_batches were weighed.
  bool full() const;

  /// Micro-batches, and samples or tokens, weighed since the window began.
  int64_t micro_batches() const { return micro_batches_; }
  int64_t count() const { return count_; }

  /// Ends the window, full or not: makes the gradients those of the mean over
  /// all that was weighed, in place, and begins the next one. Call it before
  /// unscale_() or step(). Throws c10::Error if the total count is 0.
  void finish();

  /// Gives the window up: clears the gradients and begins the next one.
  void abandon();

 private:
  void begin();

  std::vector<at::Tensor> parameters_;
  GradientAccumulationOptions options_;
  std::vector<at::Tensor> widened_; // those whose gradient dtype was changed
  double nominal_ = 0; // a power of two; 0 until the window's first count
  int64_t count_ = 0;
  int64_t micro_batches_ = 0;
};

} // namespace ampkit
