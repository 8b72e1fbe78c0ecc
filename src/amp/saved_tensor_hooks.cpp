#include "amp/saved_tensor_hooks.h"

#include <atomic>
#include <mutex>
#include <utility>

#include <torch/csrc/autograd/engine.h>

namespace ampkit {
namespace {

using torch::autograd::Engine;

SavedTensorTarget*& current_target() {
  thread_local SavedTensorTarget* target = nullptr;
  return target;
}

// Threads, queues and callbacks stay those of the engine behind it.
class HookingEngine : public Engine {
 public:
  explicit HookingEngine(Engine& behind) : behind_(behind) {}

  torch::autograd::variable_list execute(
      const torch::autograd::edge_list& roots,
      const torch::autograd::variable_list& inputs,
      bool keep_graph,
      bool create_graph,
      bool accumulate_grad,
      const torch::autograd::edge_list& outputs) override {
    return behind_.execute(
        roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
      c10::intrusive_ptr<torch::autograd::Node> graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return behind_.execute_with_graph_task(
        graph_task, std::move(graph_root), std::move(input_buffer));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata()
      override {
    return behind_.make_anomaly_metadata();
  }

  void thread_on_exception(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
      const c10::intrusive_ptr<torch::autograd::Node>& fn,
      std::exception& error) override {
    behind_.thread_on_exception(graph_task, fn, error);
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks>
  get_default_saved_variable_hooks() override {
    SavedTensorTarget* target = current_target();
    return target != nullptr ? target->hooks()
                             : behind_.get_default_saved_variable_hooks();
  }

 private:
  Engine& behind_;
};

std::atomic<HookingEngine*>& our_engine() {
  static std::atomic<HookingEngine*> engine = nullptr;
  return engine;
}

// Again if the Python bindings were loaded since and put theirs in place.
void install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Engine& present = Engine::get_default_engine();
  if (&present != our_engine().load()) {
    // Never deleted: other threads may be inside until the process ends.
    our_engine() = new HookingEngine(present);
    torch::autograd::set_default_engine_stub(
        []() -> Engine& { return *our_engine().load(); });
  }
}

} // namespace

SavedTensorScope::SavedTensorScope(SavedTensorTarget& target)
    : before_(current_target()) {
  if (&Engine::get_default_engine() != our_engine().load()) {
    install();
  }
  current_target() = &target;
}

SavedTensorScope::~SavedTensorScope() {
  current_target() = before_;
}

} // namespace ampkit
