#include "optim/stock_update.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <ATen/ATen.h>

#include "amp/adaptive_clip.h"

namespace ampkit::optim {
namespace {

constexpr int64_t kTemporaryBytes = int64_t{64} << 20;

// LibTorch's kernels want tensors of one dtype in a call, and one answer to
// whether the moments are new.
using Key = std::tuple<const OptimizerOptions*, at::ScalarType, bool>;

std::map<Key, std::vector<Work>> by_kind(std::span<const Work> works) {
  std::map<Key, std::vector<Work>> kinds;
  for (const Work& work : works) {
    const ParameterRecord& record = *work.record;
    kinds[{work.options, record.parameter.scalar_type(), record.fresh}]
        .push_back(work);
  }
  return kinds;
}

/// The master, or the parameter where somebody else changed it since.
void refresh_master(ParameterRecord& record) {
  const at::Tensor& parameter = record.parameter;
  const auto is_current =
      record.master.to(parameter.scalar_type()).eq(parameter);
  record.master.copy_(
      at::where(is_current, record.master, parameter.to(at::kFloat)));
}

std::vector<at::Tensor> divided(
    std::vector<at::Tensor> grads, const at::Tensor& divisor) {
  return divisor.defined()
             ? at::_foreach_div(grads, divisor.to(grads.front().device()))
             : std::move(grads);
}

std::vector<at::Tensor> clipped(
    std::vector<at::Tensor> grads, std::optional<double> limit) {
  if (limit.has_value()) {
    for (at::Tensor& grad : grads) {
      grad = grad.clamp(-*limit, *limit);
    }
  }
  return grads;
}

StockBatch make_batch(
    std::span<const Work> works, const FusedStepInputs& inputs) {
  StockBatch batch{.options = works.front().options};
  for (const Work& work : works) {
    ParameterRecord& record = *work.record;
    if (record.master.defined()) {
      refresh_master(record);
    }
    batch.records.push_back(&record);
    batch.weights.push_back(
        record.master.defined() ? record.master : record.parameter);
    batch.grads.push_back(work.grad.to(batch.weights.back().scalar_type()));
  }
  batch.grads = clipped(
      divided(std::move(batch.grads), inputs.grad_divisor), inputs.clip_value);
  if (inputs.found_inf.defined()) {
    // The kernels skip at exactly 1.
    batch.found_inf =
        inputs.found_inf.ne(0).to(batch.weights.front().device(), at::kFloat);
  }
  return batch;
}

/// Takes a step back on the device, without waiting for it, where it should
/// have been skipped.
class Undo {
 public:
  explicit Undo(const StockBatch& batch) : batch_(batch) {
    for (const at::Tensor& tensor : tensors()) {
      copies_.push_back(tensor.clone());
    }
  }

  void apply() const {
    const auto skipped = batch_.found_inf.ne(0);
    const auto changed = tensors();
    for (size_t i = 0; i < changed.size(); ++i) {
      changed[i].copy_(at::where(skipped, copies_[i], changed[i]));
    }
  }

 private:
  std::vector<at::Tensor> tensors() const {
    auto all = batch_.weights;
    for (const ParameterRecord* record : batch_.records) {
      for (const at::Tensor& moment : record->moments) {
        if (moment.defined()) {
          all.push_back(moment);
        }
      }
    }
    return all;
  }

  const StockBatch& batch_;
  std::vector<at::Tensor> copies_;
};

void update_or_leave(const UpdateRule& rule, const StockBatch& batch) {
  if (!batch.found_inf.defined() || rule.stock_skips_by_itself()) {
    rule.update_stock(batch);
    return;
  }
  const Undo undo(batch);
  rule.update_stock(batch);
  undo.apply();
}

void count_step(const StockBatch& batch) {
  for (ParameterRecord* record : batch.records) {
    if (record->parameter.is_cpu()) {
      record->step_tensor =
          at::full({}, static_cast<double>(record->step + 1), at::kFloat);
    } else {
      record->step_tensor.add_(1);
    }
  }
}

/// The step was taken, or the device took it back where it was not.
void finish_step(const StockBatch& batch) {
  for (ParameterRecord* record : batch.records) {
    if (record->parameter.is_cpu()) {
      ++record->step; // a step that is skipped on the CPU never comes here
    } else if (batch.found_inf.defined()) {
      record->step_tensor.sub_(batch.found_inf);
    }
    if (record->master.defined()) {
      record->parameter.copy_(record->master);
    }
    record->fresh = false;
  }
}

/// Whether "fresh" may be given up: a skipped step must leave it.
bool may_be_skipped(const UpdateRule& rule, const StockBatch& batch) {
  return batch.found_inf.defined() && rule.first_step_differs(*batch.options) &&
         batch.records.front()->fresh &&
         batch.found_inf.item<float>() != 0; // waits, until the first step only
}

} // namespace

size_t end_of_batch(std::span<const Work> works, size_t first) {
  int64_t bytes = 0;
  size_t end = first;
  while (end < works.size() && (end == first || bytes < kTemporaryBytes)) {
    bytes += works[end].grad.numel() * 4;
    ++end;
  }
  return end;
}

std::vector<Work> clip_works(
    std::span<const Work> works,
    const at::Tensor& divisor,
    const AdaptiveClip& clip) {
  std::vector<Work> clipped(works.begin(), works.end());
  for (Work& work : clipped) {
    ParameterRecord& record = *work.record;
    if (record.master.defined()) {
      refresh_master(record);
    }
    const at::Tensor& weight =
        record.master.defined() ? record.master : record.parameter;
    auto grad = work.grad.to(weight.scalar_type());
    if (divisor.defined()) {
      grad = grad / divisor.to(grad.device());
    }
    work.grad = clipped_adaptively(grad, weight, clip);
  }
  return clipped;
}

void update_with_stock_ops(
    const UpdateRule& rule,
    std::span<const Work> works,
    const FusedStepInputs& inputs) {
  for (const auto& [kind, all] : by_kind(works)) {
    for (size_t first = 0; first < all.size();) {
      const size_t end = end_of_batch(all, first);
      const auto batch =
          make_batch(std::span(all).subspan(first, end - first), inputs);
      first = end;
      if (may_be_skipped(rule, batch)) {
        continue;
      }
      count_step(batch);
      update_or_leave(rule, batch);
      finish_step(batch);
    }
  }
}

} // namespace ampkit::optim
