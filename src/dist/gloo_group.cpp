#include "dist/gloo_group.h"

namespace ampkit::dist {
namespace {

using c10d::ProcessGroupGloo;

std::shared_ptr<gloo::transport::Device> device_of(
    const LaunchEnvironment& environment, const InitOptions& options) {
  if (!options.interface.empty()) {
    return ProcessGroupGloo::createDeviceForInterface(options.interface);
  }
  if (environment.on_one_machine()) {
    return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  }
  return nullptr;
}

} // namespace

c10::intrusive_ptr<WatchedGroup> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    const LaunchEnvironment& environment,
    const InitOptions& options) {
  const auto device = device_of(environment, options);
  c10::intrusive_ptr<ProcessGroupGloo::Options> gloo;
  if (device) {
    gloo = ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(device);
  } else { // also reads GLOO_SOCKET_IFNAME
    gloo = ProcessGroupGloo::Options::create_default(options.timeout);
  }
  return c10::make_intrusive<WatchedGroup>(
      store, environment.rank, environment.world_size, gloo);
}

} // namespace ampkit::dist
