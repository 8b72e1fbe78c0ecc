#include <nlohmann/json.hpp>

#include <ampkit/zoo/report/machine.h>

namespace ampkit::zoo {
namespace {

// Keeps the order of the fields below: the file is read by people too.
using Json = nlohmann::ordered_json;

Json to_value(const std::optional<double>& speed) {
  return speed ? Json(*speed) : Json();
}

Json to_value(const std::vector<DtypeSupport>& dtypes) {
  auto array = Json::array();
  for (const auto& support : dtypes) {
    array.push_back(
        {{"name", support.name},
         {"path", to_string(support.path)},
         {"reason", support.reason},
         {"matmul_gflops", to_value(support.matmul_gflops)},
         {"conv_gflops", to_value(support.conv_gflops)},
         {"stock_matmul_gflops", to_value(support.stock_matmul_gflops)},
         {"stock_conv_gflops", to_value(support.stock_conv_gflops)}});
  }
  return array;
}

Json to_value(const std::vector<CudaDevice>& devices) {
  auto array = Json::array();
  for (const auto& device : devices) {
    array.push_back(
        {{"name", device.name},
         {"compute_capability", device.compute_capability},
         {"memory_bytes", device.memory_bytes},
         {"dtypes", to_value(device.dtypes)}});
  }
  return array;
}

Json to_value(const std::vector<MissingPart>& missing) {
  auto array = Json::array();
  for (const auto& part : missing) {
    array.push_back(
        {{"name", part.name},
         {"effect", part.effect},
         {"remedy", part.remedy}});
  }
  return array;
}

} // namespace

std::string Machine::to_json() const {
  const Json json{
      {"ampkit_version", ampkit_version},
      {"libtorch_version", libtorch_version},
      {"libraries", libraries},
      {"system", system},
      {"processor", processor},
      {"physical_cores", physical_cores},
      {"logical_cores", logical_cores},
      {"usable_cores", usable_cores},
      {"instruction_sets", instruction_sets},
      {"libtorch_kernels", libtorch_kernels},
      {"memory_bytes", memory_bytes},
      {"memory_limit_bytes", memory_limit_bytes},
      {"memory_available_bytes", memory_available_bytes},
      {"load_average", load_average},
      {"threads", threads},
      {"interop_threads", interop_threads},
      {"dtypes", to_value(dtypes)},
      {"cuda_devices", to_value(cuda_devices)},
      {"missing", to_value(missing)}};
  constexpr int kIndent = 2;
  // Names from the system may not be UTF-8; the file always is.
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace ampkit::zoo
