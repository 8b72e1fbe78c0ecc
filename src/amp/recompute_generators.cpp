#include "amp/recompute_generators.h"

#include <mutex>

#include <ATen/Context.h>

#include "io/thread_generator.h"

namespace ampkit::recompute_detail {

GeneratorStates generator_states() {
  auto& context = at::globalContext();
  std::vector<at::Device> devices{at::kCPU};
  if (at::hasCUDA()) {
    const auto& cuda = at::detail::getCUDAHooks();
    for (int i = 0; i < cuda.deviceCount(); ++i) {
      const auto index = static_cast<c10::DeviceIndex>(i);
      if (cuda.hasPrimaryContext(index)) {
        devices.emplace_back(at::kCUDA, index);
      }
    }
  }
  GeneratorStates states;
  for (const at::Device device : devices) {
    at::Generator generator = device.is_cpu()
                                  ? io::cpu_generator()
                                  : context.defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states.emplace_back(generator, generator.get_state());
  }
  return states;
}

void set_generator_states(const GeneratorStates& states) {
  for (auto [generator, state] : states) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

} // namespace ampkit::recompute_detail
