#include <ampkit/amp/custom_function.h>

#include <map>
#include <optional>

#include <ATen/autocast_mode.h>
#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/io/safetensors.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::map<std::string, torch::Dtype> kDtypes{
    {"bf16", torch::kBFloat16},
    {"fp16", torch::kHalf},
    {"fp32", torch::kFloat},
    {"fp64", torch::kDouble}};

std::string name_of(torch::Dtype dtype) {
  for (const auto& [name, value] : kDtypes) {
    if (value == dtype) {
      return name;
    }
  }
  return c10::toString(dtype);
}

json seen;

// make_product() of test_custom_function.py.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(
      AutogradContext* ctx,
      at::Tensor a,
      at::Tensor b,
      const CustomForwardOptions& options) {
    const CustomForward scope(ctx, torch::kCPU, options);
    a = scope.cast(a);
    b = scope.cast(b);
    ctx->save_for_backward({a, b});
    auto y = torch::mm(a, b);
    seen["input"] = name_of(a.scalar_type());
    seen["forward"] = name_of(y.scalar_type());
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const CustomBackward scope(ctx);
    const auto saved = ctx->get_saved_variables();
    auto grad_a = torch::mm(grads[0], saved[1].t());
    auto grad_b = torch::mm(saved[0].t(), grads[0]);
    seen["backward"] = name_of(grad_a.scalar_type());
    seen["enabled"] = at::autocast::is_autocast_enabled(at::kCPU);
    seen["dtype"] = name_of(at::autocast::get_autocast_dtype(at::kCPU));
    return {grad_a, grad_b, at::Tensor()};
  }
};

// Runs `work` in the region "off", "bf16" or "fp16".
template <class Work>
void in_region(const std::string& name, const Work& work) {
  std::optional<Autocast> region;
  if (name != "off") {
    region.emplace(torch::kCPU, kDtypes.at(name));
  }
  work();
}

// custom_function FOLDER: from cases.json and in.safetensors to out.json and
// out.safetensors.
void run_custom_function(std::span<const std::string> args) {
  set_cpu_16bit(Cpu16Bit::native); // the kernels that Python has
  const io::SafetensorsReader inputs(args[0] + "/in.safetensors");
  io::NamedTensors outputs;
  json result = json::array();
  for (const json& one : read_json(args[0] + "/cases.json")) {
    seen = json::object();
    const auto dtype = kDtypes.at(one.at("inputs"));
    auto a = inputs.copy("a").to(dtype).requires_grad_();
    auto b = inputs.copy("b").to(dtype).requires_grad_();
    CustomForwardOptions options;
    if (one.at("cast") != "none") {
      options.cast_inputs = kDtypes.at(one.at("cast"));
    }
    torch::Tensor loss;
    in_region(one.at("forward"), [&] {
      loss = (Product::apply(a, b, options).to(torch::kFloat) *
              inputs.copy("weights"))
                 .sum();
    });
    in_region(one.at("backward"), [&] { loss.backward(); });
    const auto index = std::to_string(result.size());
    outputs.emplace_back("a." + index, a.grad());
    outputs.emplace_back("b." + index, b.grad());
    result.push_back(seen);
  }
  io::save_safetensors(args[0] + "/out.safetensors", outputs);
  write_json(args[0] + "/out.json", result);
}

const Command kCustomFunction{"custom_function", run_custom_function};

} // namespace
} // namespace ampkit::oracle
