#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <ampkit/dist/context.h>
#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::dist {

/// Settings of DistributedDataParallel, the same on all ranks. Names and
/// defaults are PyTorch's where it has them.
struct AMPKIT_API DistributedDataParallelOptions {
  /// Gradients travel together up to this size; > 0.
  int64_t bucket_bytes = 25 << 20;
  /// The same of the bucket that is ready first; > 0.
  int64_t first_bucket_bytes = 1 << 20;
  /// Gradients are views of the buckets, which saves a copy of them. Clear them
  /// by DistributedDataParallel::zero_grad(): LibTorch's own refuse views.
  bool gradient_as_bucket_view = false;
  /// Some parameters get no gradient in some iterations, not the same on all
  /// ranks. A search through the graph for each forward pass.
  bool find_unused_parameters = false;
  /// The graph is the same in each iteration: parameters used several times
  /// and checkpoint() in any mixture work, and the same ones may be unused.
  /// Not together with no_sync() in the first iteration.
  bool static_graph = false;
  /// Rank 0's buffers are everybody's before each forward pass.
  bool broadcast_buffers = true;
  /// What gradients are sent and summed in, Precision::reduce for example;
  /// floating point. None: their own dtype. With a 16-bit dtype they are
  /// divided by about the root of the number of ranks before the sum, and by
  /// the rest after, so that neither overflows nor underflows early.
  std::optional<c10::ScalarType> reduce_dtype;
  /// Every so many synchronising forward passes prove that all ranks have the
  /// same parameters, bit for bit; 0: never.
  int64_t checksum_every = 0;

  /// Throws c10::ValueError, naming the field, if one is out of range.
  void check() const;
};

namespace ddp_detail {

/// Adds the tensors of a forward pass' result to `all`.
inline void collect(const at::Tensor& output, std::vector<at::Tensor>& all) {
  all.push_back(output);
}
/// The tensors anywhere within it.
AMPKIT_API void collect(
    const c10::IValue& output, std::vector<at::Tensor>& all);
template <typename T>
void collect(const std::optional<T>& output, std::vector<at::Tensor>& all);
template <typename T>
void collect(const std::vector<T>& output, std::vector<at::Tensor>& all);
template <typename K, typename T>
void collect(const std::map<K, T>& output, std::vector<at::Tensor>& all);
template <typename A, typename B>
void collect(const std::pair<A, B>& output, std::vector<at::Tensor>& all);
template <typename... T>
void collect(const std::tuple<T...>& output, std::vector<at::Tensor>& all);
template <typename T>
  requires(std::is_arithmetic_v<T>)
void collect(T /*output*/, std::vector<at::Tensor>& /*all*/) {}

template <typename T>
void collect(const std::optional<T>& output, std::vector<at::Tensor>& all) {
  if (output.has_value()) {
    collect(*output, all);
  }
}
template <typename T>
void collect(const std::vector<T>& output, std::vector<at::Tensor>& all) {
  for (const auto& part : output) {
    collect(part, all);
  }
}
template <typename K, typename T>
void collect(const std::map<K, T>& output, std::vector<at::Tensor>& all) {
  for (const auto& [key, part] : output) {
    collect(part, all);
  }
}
template <typename A, typename B>
void collect(const std::pair<A, B>& output, std::vector<at::Tensor>& all) {
  collect(output.first, all);
  collect(output.second, all);
}
template <typename... T>
void collect(const std::tuple<T...>& output, std::vector<at::Tensor>& all) {
  std::apply([&](const auto&... part) { (collect(part, all), ...); }, output);
}

} // namespace ddp_detail

/// Trains one module on several ranks, each with its own part of a batch: the
/// gradients that backward() leaves are the mean over the ranks. They are sent
/// in buckets while backward still computes the rest.
///
///     ampkit::dist::DistributedDataParallel ddp(*model, context);
///     for (auto& batch : loader) { // this rank's part
///       auto pass = [&] { return model->forward(batch.input); };
///       torch::mse_loss(ddp.forward(pass), batch.target).backward();
///       optimizer.step();
///       ddp.zero_grad();
///     }
///
/// At the start each rank gets the parameters and buffers of rank 0. Any module
/// works, TorchScript's too, with whatever forward() takes, and results that
/// are tensors, numbers, c10::IValue, or std::optional, vector, map, pair and
/// tuple of such. All ranks must do the same passes in the same order.
///
/// The module is used as it is, in place; it must live as long as this and must
/// keep its parameters. Construct it after the module was moved and cast, and
/// the optimizer before or after. Loss scaling needs GradScalerOptions::
/// agree_over_ranks where ranks may see different faults. Not thread-safe.
///
/// Source: torch.nn.parallel.DistributedDataParallel; c10d's Reducer, which it
/// shares with PyTorch, does the work.
class AMPKIT_API DistributedDataParallel {
 public:
  /// Throws c10::ValueError if an option is out of range or the module has no
  /// parameter that requires a gradient; c10::Error if the ranks' modules
  /// differ in the number or shapes of their parameters.
  DistributedDataParallel(
      torch::nn::Module& module,
      const Context& context,
      const DistributedDataParallelOptions& options = {});

  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel(DistributedDataParallel&&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(DistributedDataParallel&&) = delete;

  /// `pass()`, one forward pass of the module, and what must happen around it.
  /// Throws c10::Error, naming them, if parameters got no gradient in the last
  /// backward pass and find_unused_parameters is off.
  template <typename Pass>
  auto forward(Pass&& pass) {
    begin_forward();
    auto output = std::forward<Pass>(pass)();
    std::vector<at::Tensor> tensors;
    ddp_detail::collect(output, tensors);
    end_forward(tensors);
    return output;
  }

  /// While it lives, backward passes only add to this rank's gradients. The
  /// first backward pass after it, of a forward pass after it, sends the sum.
  class AMPKIT_API NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync(NoSync&&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    NoSync& operator=(NoSync&&) = delete;

   private:
    friend class DistributedDataParallel;
    explicit NoSync(DistributedDataParallel& ddp);
    DistributedDataParallel& ddp_;
    bool before_;
  };

  /// For accumulation:
  ///
  ///     {
  ///       const auto no_sync = ddp.no_sync();
  ///       ...  // all micro-batches but the last
  ///     }
  ///     ...    // the last
  [[nodiscard]] NoSync no_sync();

  /// For ranks whose batches end at different times, called by all of them in
  /// each iteration: whether any rank still has a batch. A rank without one
  /// takes part by pass_without_batch(); the gradient is the mean over the
  /// ranks that have one. So weights, optimizers and schedules stay equal on
  /// all ranks to the end:
  ///
  ///     auto batch = loader.next();
  ///     while (ddp.join(batch.has_value())) {
  ///       if (batch) {
  ///         loss(ddp.forward(...)).backward();
  ///       } else {
  ///         ddp.pass_without_batch();
  ///       }
  ///       optimizer.step();
  ///       ddp.zero_grad();
  ///       batch = loader.next();
  ///     }
  ///
  /// Throws c10::Error with a static_graph.
  bool join(bool has_batch);

  /// The forward and backward pass of a rank without a batch: it leaves the
  /// other ranks' gradient. With find_unused_parameters, a parameter that no
  /// rank used has no gradient, but for the first one. A module whose forward
  /// pass communicates, by SyncBatchNorm, can't be passed so.
  void pass_without_batch();

  /// Forgets the gradients of the module, views of buckets too.
  void zero_grad();

  /// The size of each bucket, in the order in which they are sent. Changes
  /// once, after the first backward pass, to the order in which gradients come.
  std::vector<int64_t> bucket_bytes() const;

  /// Of the synchronising passes that were measured, the first ten and then
  /// every hundredth: means, in seconds.
  struct Times {
    double forward = 0;
    double backward = 0; ///< all of it
    double communication = 0; ///< from the first bucket to the last
    double overlap = 0; ///< of the two
    int64_t passes = 0; ///< so far, measured or not
  };
  Times times() const;

 private:
  void begin_forward();
  void end_forward(const std::vector<at::Tensor>& outputs);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit::dist
