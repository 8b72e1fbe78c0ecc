#include "amp/selective_recompute.h"

#include <memory>
#include <mutex>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "amp/op_table.h"

namespace ampkit::recompute_detail {
namespace {

struct Active {
  KeptResults* results = nullptr;
  KeepScope::Mode mode = KeepScope::Mode::keep;
  size_t next = 0;
};

thread_local Active active;

void keep_or_give(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const bool chosen = active.results != nullptr && active.results->chosen(op);
  if (chosen && active.mode == KeepScope::Mode::give) {
    active.results->give(active.next++, op, *stack);
    return;
  }
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  if (chosen) {
    active.results->keep(op, *stack);
  }
}

std::string name_of(const c10::OperatorHandle& op) {
  return toString(op.operator_name());
}

// Once a process for each op; when no KeepScope lives, it only passes on.
void install(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static std::unordered_set<c10::OperatorName> installed;
  static std::vector<std::unique_ptr<torch::Library>> libraries;
  const std::lock_guard lock(mutex);
  const auto& name = op.operator_name();
  if (!installed.insert(name).second) {
    return;
  }
  const auto separator = name.name.find("::");
  auto library = std::make_unique<torch::Library>(
      torch::Library::IMPL,
      name.name.substr(0, separator),
      c10::DispatchKey::ADInplaceOrView,
      __FILE__,
      __LINE__);
  const auto local =
      name.name.substr(separator + 2) +
      (name.overload_name.empty() ? "" : "." + name.overload_name);
  library->impl(
      local.c_str(),
      torch::CppFunction::makeFromBoxedFunction<&keep_or_give>());
  libraries.push_back(std::move(library));
}

bool gives_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr) {
      return true;
    }
  }
  return false;
}

// Decomposed above autograd, so that nothing below ever sees it.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(
      c10::DispatchKey::CompositeImplicitAutograd);
}

bool draws_random_numbers(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded);
}

} // namespace

KeptResults::KeptResults(
    const std::vector<std::string>& ops, bool with_generators)
    : with_generators_(with_generators) {
  for (const std::string& name : ops) {
    std::string why;
    bool any = false;
    for (const auto& found :
         op_table::match(name, "RecomputeOptions::save_results_of")) {
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
          found.name.c_str(), found.overload_name.c_str());
      if (is_composite(op)) {
        why = "is made of other ops; name those (of linear: addmm, mm)";
      } else if (gives_view(op.schema())) {
        why = "gives a view, which costs nothing to make again";
      } else {
        install(op);
        ops_.insert(found);
        any = true;
      }
    }
    TORCH_CHECK_VALUE(
        any, "RecomputeOptions::save_results_of: '", name, "' ", why);
  }
}

bool KeptResults::chosen(const c10::OperatorHandle& op) const {
  return ops_.count(op.operator_name()) > 0;
}

void KeptResults::keep(
    const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Call call{.op = op.operator_name()};
  const size_t count = op.schema().returns().size();
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(count);
       value != stack.end();
       ++value) {
    const bool tensor = value->isTensor() && value->toTensor().defined();
    // Not the tensor itself: the graph, which owns this, will own that too.
    call.results.push_back(
        tensor ? c10::IValue(value->toTensor().tensor_data()) : *value);
    call.versions.push_back(
        tensor ? static_cast<uint32_t>(value->toTensor()._version()) : 0);
  }
  if (with_generators_ && draws_random_numbers(op)) {
    call.generators = generator_states();
  }
  calls_.push_back(std::move(call));
}

void KeptResults::give(
    size_t call,
    const c10::OperatorHandle& op,
    torch::jit::Stack& stack) const {
  TORCH_CHECK(
      call < calls_.size() && calls_[call].op == op.operator_name(),
      "checkpoint: the recomputation differs from the call of fn: call ",
      call,
      " of an op in save_results_of is ",
      name_of(op),
      ", not ",
      call < calls_.size() ? toString(calls_[call].op) : "none",
      "; fn must do the same each time");
  torch::jit::drop(stack, op.schema().arguments().size());
  const Call& kept = calls_[call];
  for (size_t i = 0; i < kept.results.size(); ++i) {
    const c10::IValue& result = kept.results[i];
    if (!result.isTensor() || !result.toTensor().defined()) {
      stack.push_back(result);
      continue;
    }
    TORCH_CHECK(
        result.toTensor()._version() == kept.versions[i],
        "checkpoint: result ",
        i,
        " of ",
        name_of(op),
        ", kept by save_results_of, was changed in place by fn; use the op "
        "that is not in place");
    stack.emplace_back(result.toTensor().tensor_data());
  }
  set_generator_states(kept.generators);
}

KeepScope::KeepScope(KeptResults* results, Mode mode)
    : results_before_(active.results),
      mode_before_(active.mode),
      next_before_(active.next) {
  active = {.results = results, .mode = mode, .next = 0};
}

KeepScope::~KeepScope() {
  active = {
      .results = results_before_, .mode = mode_before_, .next = next_before_};
}

} // namespace ampkit::recompute_detail
