#include "amp/recompute_frame.h"

#include <tuple>

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include "amp/recompute_run.h"

namespace ampkit::recompute_detail {
namespace {

using torch::autograd::SavedVariableHooks;

class LettingGo : public SavedVariableHooks {
 public:
  explicit LettingGo(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    std::tie(index_, kind_) = frame_->add(tensor);
  }
  at::Tensor call_unpack_hook() override { return frame_->value(index_); }

 private:
  std::shared_ptr<Frame> frame_;
  size_t index_ = 0;
  std::shared_ptr<const SavedKind> kind_;
};

} // namespace

SavedKind::SavedKind(const at::Tensor& tensor)
    : sizes(tensor.is_nested() ? std::vector<int64_t>() : tensor.sizes().vec()),
      dtype(tensor.scalar_type()),
      device(tensor.device()),
      version(
          tensor.is_leaf() && tensor.requires_grad() ? tensor._version() : 0) {}

std::string SavedKind::text() const {
  return c10::str(
      dtype,
      " ",
      c10::IntArrayRef(sizes),
      " on ",
      device,
      version > 0 ? c10::str(", changed ", version, " times") : "");
}

Frame::Frame(
    const RecomputeOptions& options,
    const std::vector<at::Tensor>& inputs,
    Scope::Rerun rerun)
    : options_(options),
      rerun_(std::move(rerun)),
      surroundings_(options.preserve_rng_state) {
  if (!options.save_results_of.empty()) {
    kept_.emplace(options.save_results_of, options.preserve_rng_state);
  }
  inputs_.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    // Through the hooks of the checkpoint around this one, if any.
    inputs_.emplace_back(input, /*is_output=*/false);
  }
}

std::unique_ptr<SavedVariableHooks> Frame::hooks() {
  return std::make_unique<LettingGo>(shared_from_this());
}

std::pair<size_t, std::shared_ptr<const SavedKind>> Frame::add(
    const at::Tensor& tensor) {
  auto kind = std::make_shared<const SavedKind>(tensor);
  kinds_.emplace_back(kind);
  return {kinds_.size() - 1, std::move(kind)};
}

at::Tensor Frame::value(size_t index) {
  const std::lock_guard lock(mutex_);
  const int graph_task = torch::autograd::get_current_graph_task_id();
  SavedValue found;
  if (graph_task < 0) {
    found = recompute(index).at(index);
  } else {
    if (graph_task != graph_task_ || index >= values_.size()) {
      values_ = recompute(std::nullopt);
      graph_task_ = graph_task;
      forget_after(graph_task);
    }
    if (!values_.at(index).tensor.defined()) { // asked for twice
      values_[index] = std::move(recompute(index).at(index));
    }
    found = std::exchange(values_[index], SavedValue());
  }
  TORCH_CHECK(
      found.tensor._version() == found.version,
      "checkpoint: one of the tensors needed for gradient computation, ",
      SavedKind(found.tensor).text(),
      ", was changed in place by fn after an op had saved it; use the op that "
      "is not in place");
  return std::move(found.tensor);
}

// Values that this pass never asks for, as torch::autograd::grad() may not.
void Frame::forget_after(int graph_task) {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this(), graph_task] {
        if (const auto self = weak.lock(); self != nullptr) {
          const std::lock_guard lock(self->mutex_);
          if (self->graph_task_ == graph_task) {
            self->graph_task_ = -1;
            self->values_.clear();
          }
        }
      });
}

std::vector<SavedValue> Frame::recompute(std::optional<size_t> only) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const auto& input : inputs_) {
    inputs.push_back(input.unpack());
  }
  RecomputeRun run(kinds_, only, options_);
  run.call(rerun_, inputs, surroundings_, kept());
  // An fn that calls backward itself is asked before all is counted.
  run.check(forward_ended_);
  return run.take();
}

} // namespace ampkit::recompute_detail
