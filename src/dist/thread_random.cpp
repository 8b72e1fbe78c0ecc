#include "dist/thread_random.h"

#include <algorithm>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace ampkit::dist {
namespace {

// A key that no tensor has: it is looked at only where a thread includes it, by
// a ThreadRandom, and costs other threads nothing. LibTorch defines it for
// tests of just that, and nothing in it uses the key.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

bool takes_generator(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(
      *c10::OptionalType::create(c10::GeneratorType::get()));
}

// Factories of random tensors have no tensor to tell the device from, and need
// none: they fill an empty one by an op that comes here again.
bool has_cpu_tensor(c10::ArrayRef<c10::IValue> arguments) {
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      return argument.toTensor().is_cpu();
    }
  }
  return false;
}

void give_generator(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const auto& types = op.schema().arguments();
  const auto first = stack->size() - types.size();
  const auto& generator = io::thread_generator();
  if (generator.defined() &&
      has_cpu_tensor(torch::jit::last(*stack, types.size()))) {
    for (size_t i = 0; i < types.size(); ++i) {
      auto& argument = (*stack)[first + i];
      if (argument.isNone() && takes_generator(types[i])) {
        argument = c10::IValue(generator);
      }
    }
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

// LibTorch's ops that take a generator; all others fall through.
void install_kernels() {
  static const auto libraries = [] {
    std::vector<torch::Library> made;
    made.emplace_back(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made.back().fallback(torch::CppFunction::makeFallthrough());
    made.emplace_back(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || !name.name.starts_with("aten::")) {
        continue;
      }
      const auto& types = op->schema().arguments();
      if (std::ranges::any_of(types, takes_generator)) {
        made.back().impl(
            c10::str(
                name.name,
                name.overload_name.empty() ? "" : ".",
                name.overload_name)
                .c_str(),
            torch::CppFunction::makeFromBoxedFunction<&give_generator>());
      }
    }
    return made;
  }();
}

c10::DispatchKey installed_key() {
  install_kernels();
  return kKey;
}

} // namespace

ThreadRandom::ThreadRandom(const at::Generator& generator)
    : guard_(generator), include_(installed_key()) {}

} // namespace ampkit::dist
