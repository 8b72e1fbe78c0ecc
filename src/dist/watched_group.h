#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective_check.h"
#include "dist/own_sockets.h"
#include "dist/peer_watch.h"
#include "dist/process_group_gloo.h"
#include "dist/rank_progress.h"
#include "dist/watched_work.h"

namespace ampkit::dist {

/// Gloo that records what this rank does, says who is to blame when it fails,
/// and compares the ranks' collectives if asked to. LibTorch's has no abort():
/// the other ranks would notice only when the last reference to the group goes.
class WatchedGroup : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  using Works = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;

  const std::shared_ptr<RankProgress>& progress() const { return progress_; }

  /// From now on; without it nobody is blamed.
  void set_watch(std::shared_ptr<PeerWatch> watch);
  void set_check(std::unique_ptr<CollectiveCheck> check);
  /// Its connections. With them abort() also ends what waits in this process,
  /// which Gloo's own closing of a connection does not.
  void set_sockets(std::vector<OwnSocket> sockets);

  void abort() override;

  Works broadcast(Tensors& tensors, const c10d::BroadcastOptions& o) override;
  Works allreduce(Tensors& tensors, const c10d::AllreduceOptions& o) override;
  Works allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) override;
  Works reduce(Tensors& tensors, const c10d::ReduceOptions& o) override;
  Works _reduce_scatter_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::ReduceScatterOptions& o) override;
  Works _allgather_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::AllgatherOptions& o) override;
  Works allgather(
      Lists& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& o) override;
  Works allgather_coalesced(
      Lists& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& o) override;
  Works allgather_into_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& o) override;
  Works gather(
      Lists& outputs, Tensors& inputs, const c10d::GatherOptions& o) override;
  Works scatter(
      Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& o) override;
  Works reduce_scatter(
      Tensors& outputs,
      Lists& inputs,
      const c10d::ReduceScatterOptions& o) override;
  Works reduce_scatter_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::ReduceScatterOptions& o) override;
  Works alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& o) override;
  Works alltoall(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::AllToAllOptions& o) override;
  Works barrier(const c10d::BarrierOptions& o) override;

 private:
  template <class Run>
  Works watched(const std::string& what, const Run& run) {
    before(what);
    return make_watched_work(run(), explainer(what), pending_);
  }
  void before(const std::string& what);
  ExplainError explainer(const std::string& what) const;

  std::shared_ptr<RankProgress> progress_ = std::make_shared<RankProgress>();
  std::shared_ptr<PeerWatch> watch_;
  std::unique_ptr<CollectiveCheck> check_;
  std::vector<OwnSocket> sockets_;
  PendingWorks pending_;
};

} // namespace ampkit::dist
