#include <ampkit/io/rng_state.h>

#include <mutex>
#include <vector>

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "io/thread_generator.h"

namespace ampkit::io {
namespace {

struct NamedGenerator {
  std::string name;
  at::Generator generator;
};

std::vector<NamedGenerator> generators() {
  auto& context = at::globalContext();
  std::vector<NamedGenerator> result{{"cpu", cpu_generator()}};
  const int64_t count =
      at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  for (int64_t i = 0; i < count; ++i) {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(i));
    result.push_back(
        {"cuda." + std::to_string(i), context.defaultGenerator(device)});
  }
  return result;
}

at::Tensor locked_state(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void check_entry(const std::string& name, const at::Tensor& found) {
  for (auto& known : generators()) {
    if (known.name == name) {
      const at::Tensor present = locked_state(known.generator);
      TORCH_CHECK(
          found.scalar_type() == at::kByte && found.sizes() == present.sizes(),
          "set_rng_state: entry '",
          name,
          "' should be ",
          describe(present),
          ", got ",
          describe(found));
      return;
    }
  }
  TORCH_CHECK(
      false,
      "set_rng_state: entry '",
      name,
      "' is of a device that is not there");
}

} // namespace

StateDict rng_state() {
  StateDict state;
  for (auto& [name, generator] : generators()) {
    state.set(name, locked_state(generator));
  }
  return state;
}

void set_rng_state(const StateDict& state) {
  state.tensor("cpu");
  for (const auto& entry : state.entries()) {
    check_entry(entry.first, state.tensor(entry.first));
  }
  for (auto& [name, generator] : generators()) {
    if (state.contains(name)) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(state.tensor(name).cpu());
    }
  }
}

} // namespace ampkit::io
