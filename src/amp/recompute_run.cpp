#include "amp/recompute_run.h"

#include <string_view>
#include <typeinfo>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "amp/thread_autocast.h"

namespace ampkit::recompute_detail {
namespace {

// No std::exception, so that an fn that catches those doesn't catch it.
struct Stop {
  const RecomputeRun* run;
};

class Catching : public torch::autograd::SavedVariableHooks {
 public:
  explicit Catching(RecomputeRun& run) : run_(run) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    run_.add(tensor);
  }
  // Where fn itself calls backward.
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  RecomputeRun& run_; // not used after call_pack_hook()
  at::Tensor tensor_;
};

// A torch::autograd::Function holds what it saves until it has saved all of it.
// If that is its own result and it is left before, both hold each other for
// ever; LibTorch's ops don't.
bool may_be_saved_by_custom_function(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  return node != nullptr &&
         std::string_view(typeid(*node).name()).find("CppNode") !=
             std::string_view::npos;
}

// Puts the generators in a state and back.
class Generators {
 public:
  explicit Generators(const GeneratorStates& states)
      : before_(states.empty() ? states : generator_states()) {
    set_generator_states(states);
  }
  ~Generators() { set_generator_states(before_); }
  Generators(const Generators&) = delete;
  Generators(Generators&&) = delete;
  Generators& operator=(const Generators&) = delete;
  Generators& operator=(Generators&&) = delete;

 private:
  GeneratorStates before_;
};

// The autocast state of the call, marked as a recomputation.
class Region {
 public:
  explicit Region(const Surroundings& surroundings)
      : module_(thread_autocast().current_module),
        recomputing_(thread_autocast().recomputing) {
    autocast_.emplace(surroundings.autocast);
    thread_autocast().current_module = surroundings.module;
    thread_autocast().recomputing = true;
  }
  ~Region() {
    autocast_.reset(); // first: it leaves no current module
    thread_autocast().current_module = module_;
    thread_autocast().recomputing = recomputing_;
  }
  Region(const Region&) = delete;
  Region(Region&&) = delete;
  Region& operator=(const Region&) = delete;
  Region& operator=(Region&&) = delete;

 private:
  int module_;
  bool recomputing_;
  std::optional<Autocast> autocast_;
};

} // namespace

Surroundings::Surroundings(bool with_generators)
    : autocast(AutocastState::current()),
      module(thread_autocast().current_module),
      generators(with_generators ? generator_states() : GeneratorStates()) {}

RecomputeRun::RecomputeRun(
    const std::vector<std::weak_ptr<const SavedKind>>& kinds,
    std::optional<size_t> only,
    const RecomputeOptions& options)
    : kinds_(kinds),
      only_(only),
      options_(options),
      values_(kinds.size()),
      needed_(only.has_value() ? *only + 1 : kinds.size()) {}

void RecomputeRun::call(
    const Scope::Rerun& rerun,
    const std::vector<at::Tensor>& inputs,
    const Surroundings& surroundings,
    KeptResults* kept) {
  const Generators generators(surroundings.generators);
  const Region region(surroundings);
  const c10::AutoGradMode grad_mode(true);
  const SavedTensorScope scope(*this);
  const KeepScope keep(kept, KeepScope::Mode::give);
  try {
    rerun(inputs);
  } catch (const Stop& stop) {
    if (stop.run != this) {
      throw;
    }
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> RecomputeRun::hooks() {
  return std::make_unique<Catching>(*this);
}

void RecomputeRun::add(const at::Tensor& tensor) {
  const size_t index = count_++;
  const auto kind = index < kinds_.size() ? kinds_[index].lock()
                                          : std::shared_ptr<const SavedKind>();
  if (kind != nullptr && only_.value_or(index) == index) {
    const SavedKind found(tensor);
    if (options_.determinism_check && difference_.empty() && found != *kind) {
      difference_ = c10::str(
          "saved tensor ", index, " is ", found.text(), ", not ", kind->text());
    }
    values_[index] = {.tensor = tensor.detach(), .version = tensor._version()};
  }
  if (options_.early_stop && count_ >= needed_ &&
      !may_be_saved_by_custom_function(tensor)) {
    throw Stop{this};
  }
}

void RecomputeRun::check(bool forward_ended) const {
  constexpr const char* kAdvice =
      "; fn must do the same each time: look for parameters changed since, "
      "branches on outer state, random numbers of other generators";
  const bool fewer = count_ < needed_;
  const bool more = forward_ended && !only_.has_value() && count_ > needed_;
  TORCH_CHECK(
      !fewer && !more,
      "checkpoint: the recomputation saved ",
      count_,
      " tensors for backward, the call of fn ",
      needed_,
      kAdvice);
  TORCH_CHECK(
      difference_.empty(),
      "checkpoint: the recomputation differs from the call of fn: ",
      difference_,
      kAdvice);
}

} // namespace ampkit::recompute_detail
