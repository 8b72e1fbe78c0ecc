#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <ampkit/amp/precision.h>
#include <ampkit/dist/context.h>
#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/zoo/data/image_loader.h>
#include <ampkit/zoo/models/model.h>

namespace ampkit::zoo {

/// This process among those that train together; it may be the only one, and
/// then nothing here communicates. What is said of "all ranks" must be called
/// by all of them, in the same order.
class Ranks {
 public:
  explicit Ranks(std::optional<dist::Context> context);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool alone() const { return size() == 1; }
  int64_t rank() const { return context_ ? context_->rank() : 0; }
  int64_t size() const { return context_ ? context_->world_size() : 1; }

  /// GradScalerOptions::agree_over_ranks and Fp8Options::reduce_amax; empty if
  /// alone.
  std::function<void(at::Tensor& values)> maximum() const;

  /// Gives all ranks the weights of rank 0 and has backward() reduce gradients
  /// from now on. All ranks.
  void attach(const Model& model, const Precision& precision);

  /// A forward pass of the attached network. `synchronise`: the backward pass
  /// that follows reduces the gradients, also those of earlier passes.
  at::Tensor forward(const at::Tensor& input, bool synchronise);

  /// Such that the gradients of all ranks' results, which are averaged, are
  /// those of the mean over the step's images. `mean`: over this rank's.
  at::Tensor weigh(const at::Tensor& mean, const Batch& batch) const;

  /// Rank 0's running statistics become everybody's. All ranks.
  void share_buffers() const;

  /// Adds up `values` over all ranks, in place. All ranks.
  void sum_(at::Tensor& values) const;

  /// What the others are told this rank was at if it is lost.
  void at_step(int64_t step) const;

  /// A sum over all ranks that is on its way.
  class Sum {
   public:
    /// Its values; waits for the other ranks.
    const at::Tensor& wait();

   private:
    friend class Ranks;
    struct Work;
    at::Tensor values_;
    std::shared_ptr<Work> work_; // none: nothing to wait for
  };
  /// Begins to add up a step's loss, with whether this rank was asked to stop:
  /// float32 [2]. All ranks.
  Sum begin_sum(const at::Tensor& loss, bool stop) const;

  /// The state of every rank's CPU random numbers, uint8 [ranks, n]. All ranks.
  at::Tensor random_states() const;
  /// Takes this rank's of them, if there are as many as ranks.
  void set_random_state(const at::Tensor& states) const;

 private:
  std::optional<dist::Context> context_;
  std::optional<Model> model_;
  std::unique_ptr<dist::DistributedDataParallel> ddp_; // none if alone
};

/// What rank 0 gives as `text`. All ranks of `context`.
std::string text_of_rank_0(
    const dist::Context& context, const std::string& text);

} // namespace ampkit::zoo
