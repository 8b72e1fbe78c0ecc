#include "dist/watched_group.h"

#include <stdexcept>
#include <utility>

#include <gloo/context.h>

namespace ampkit::dist {
namespace {

std::string operation(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return " (sum)";
    case c10d::ReduceOp::AVG:
      return " (average)";
    case c10d::ReduceOp::PRODUCT:
      return " (product)";
    case c10d::ReduceOp::MIN:
      return " (minimum)";
    case c10d::ReduceOp::MAX:
      return " (maximum)";
    default:
      return " (of bits)";
  }
}

std::string from_rank(int64_t rank) {
  return c10::str(" from rank ", rank);
}

std::string to_rank(int64_t rank) {
  return c10::str(" to rank ", rank);
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& known) {
    return known.what_without_backtrace();
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

} // namespace

void WatchedGroup::set_watch(std::shared_ptr<PeerWatch> watch) {
  watch_ = std::move(watch);
}

void WatchedGroup::set_check(std::unique_ptr<CollectiveCheck> check) {
  check_ = std::move(check);
}

void WatchedGroup::set_sockets(std::vector<OwnSocket> sockets) {
  sockets_ = std::move(sockets);
}

void WatchedGroup::abort() {
  for (const auto& socket : sockets_) {
    shut_down(socket);
  }
  if (sockets_.empty()) {
    for (const auto& context : contexts_) {
      context->closeConnections();
    }
  }
  if (check_) {
    check_->abort();
  }
  pending_.fail(explainer("a collective")(std::make_exception_ptr(
      std::runtime_error("the connections were closed"))));
}

void WatchedGroup::before(const std::string& what) {
  const auto number = progress_->begin(what);
  if (!check_) {
    return;
  }
  std::exception_ptr error;
  try {
    check_->check(number, what, progress_->text());
    return;
  } catch (const c10::Error&) {
    throw; // the mismatch
  } catch (...) {
    error = std::current_exception();
  }
  std::rethrow_exception(explainer(what)(error));
}

ExplainError WatchedGroup::explainer(const std::string& what) const {
  return [what, watch = watch_, progress = progress_, rank = getRank()](
             const std::exception_ptr& error) {
    const auto lost = watch ? watch->find_lost() : "";
    std::string why = lost;
    if (lost.empty() && watch) {
      why = "no rank was lost; they are" + watch->all_ranks() + "\n";
    }
    return std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, __LINE__},
        c10::str(
            "rank ",
            rank,
            " ",
            progress->text(),
            ": ",
            what,
            " failed: ",
            why,
            why.empty() ? "" : " (",
            message_of(error),
            why.empty() ? "" : ")")));
  };
}

WatchedGroup::Works WatchedGroup::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& o) {
  return watched(
      describe_collective("broadcast", tensors, from_rank(o.rootRank)),
      [&] { return ProcessGroupGloo::broadcast(tensors, o); });
}

WatchedGroup::Works WatchedGroup::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& o) {
  return watched(
      describe_collective("allreduce", tensors, operation(o.reduceOp)),
      [&] { return ProcessGroupGloo::allreduce(tensors, o); });
}

WatchedGroup::Works WatchedGroup::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) {
  return watched(
      describe_collective(
          "allreduce_coalesced", tensors, operation(o.reduceOp)),
      [&] { return ProcessGroupGloo::allreduce_coalesced(tensors, o); });
}

WatchedGroup::Works WatchedGroup::reduce(
    Tensors& tensors, const c10d::ReduceOptions& o) {
  return watched(
      describe_collective(
          "reduce", tensors, operation(o.reduceOp) + to_rank(o.rootRank)),
      [&] { return ProcessGroupGloo::reduce(tensors, o); });
}

WatchedGroup::Works WatchedGroup::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& o) {
  return watched(
      describe_collective("reduce_scatter", {input}, operation(o.reduceOp)),
      [&] { return ProcessGroupGloo::_reduce_scatter_base(output, input, o); });
}

WatchedGroup::Works WatchedGroup::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& o) {
  return watched(describe_collective("allgather", {input}), [&] {
    return ProcessGroupGloo::_allgather_base(output, input, o);
  });
}

WatchedGroup::Works WatchedGroup::allgather(
    Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) {
  return watched(describe_collective("allgather", inputs), [&] {
    return ProcessGroupGloo::allgather(outputs, inputs, o);
  });
}

WatchedGroup::Works WatchedGroup::allgather_coalesced(
    Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) {
  return watched(describe_collective("allgather_coalesced", inputs), [&] {
    return ProcessGroupGloo::allgather_coalesced(outputs, inputs, o);
  });
}

WatchedGroup::Works WatchedGroup::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) {
  return watched(
      describe_collective("allgather_into_tensor_coalesced", inputs), [&] {
        return ProcessGroupGloo::allgather_into_tensor_coalesced(
            outputs, inputs, o);
      });
}

WatchedGroup::Works WatchedGroup::gather(
    Lists& outputs, Tensors& inputs, const c10d::GatherOptions& o) {
  return watched(
      describe_collective("gather", inputs, to_rank(o.rootRank)),
      [&] { return ProcessGroupGloo::gather(outputs, inputs, o); });
}

WatchedGroup::Works WatchedGroup::scatter(
    Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& o) {
  return watched(
      describe_collective("scatter", outputs, from_rank(o.rootRank)),
      [&] { return ProcessGroupGloo::scatter(outputs, inputs, o); });
}

WatchedGroup::Works WatchedGroup::reduce_scatter(
    Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& o) {
  return watched(
      describe_collective("reduce_scatter", outputs, operation(o.reduceOp)),
      [&] { return ProcessGroupGloo::reduce_scatter(outputs, inputs, o); });
}

WatchedGroup::Works WatchedGroup::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& o) {
  return watched(
      describe_collective(
          "reduce_scatter_tensor_coalesced", inputs, operation(o.reduceOp)),
      [&] {
        return ProcessGroupGloo::reduce_scatter_tensor_coalesced(
            outputs, inputs, o);
      });
}

// Ranks may give and take different numbers of rows.
WatchedGroup::Works WatchedGroup::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& o) {
  const bool equal = input_sizes.empty() && output_sizes.empty();
  return watched(
      describe_collective("alltoall", equal ? Tensors{input} : Tensors()), [&] {
        return ProcessGroupGloo::alltoall_base(
            output, input, output_sizes, input_sizes, o);
      });
}

WatchedGroup::Works WatchedGroup::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& o) {
  return watched("alltoall of lists", [&] {
    return ProcessGroupGloo::alltoall(outputs, inputs, o);
  });
}

WatchedGroup::Works WatchedGroup::barrier(const c10d::BarrierOptions& o) {
  return watched("barrier", [&] { return ProcessGroupGloo::barrier(o); });
}

} // namespace ampkit::dist
