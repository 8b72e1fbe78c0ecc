#include "diagnose/planted_faults.h"

#include <ampkit/amp/recompute.h>
#include <ampkit/amp/script_module.h>
#include <ampkit/optim/adamw.h>
#include <torch/script.h>

namespace ampkit::diagnose {
namespace {

std::vector<PlantedFault> faults_of_data_and_state() {
  return {
      {"a NaN pixel",
       {Verdict::bad_input, "", ""},
       in_conv([](auto&, Trial& t) { t.input[3][0][2][2] = kNan; })},
      {"an infinite pixel in fp16",
       {Verdict::bad_input, "", ""},
       in_conv(
           [](auto&, Trial& t) { t.input[3][0][2][2] = -kInf; }, at::kHalf)},
      {"a poisoned weight",
       {Verdict::bad_parameter, "", "conv2.weight"},
       in_conv([](auto& net, Trial&) { set(net.conv2->weight, kNan); })},
      {"a poisoned weight in bf16",
       {Verdict::bad_parameter, "", "blocks.1.up.weight"},
       in_text(
           [](auto& net, Trial&) { set(net.block(1).up->weight, kInf); },
           at::kBFloat16)},
      {"an embedding row that was never trained",
       {Verdict::bad_parameter, "", "embed.weight"},
       in_text([](auto& net, Trial&) {
         const torch::NoGradGuard no_grad;
         net.embed->weight.fill_(kNan);
       })},
      {"running statistics of a bad batch",
       {Verdict::bad_buffer, "", "bn1.running_var"},
       in_conv([](auto& net, Trial&) {
         net.eval();
         net.bn1->running_var[0] = kNan;
       })},
  };
}

std::vector<PlantedFault> faults_of_operations() {
  const auto zero = [](const at::Tensor& x) { return x * 0; };
  return {
      {"log(0)", {Verdict::logarithm, "log", "bn1"}, features([=](auto& x) {
         return zero(x).log();
       })},
      {"log of a saturated softmax",
       {Verdict::logarithm, "log", "conv2"},
       pooled([](auto& x) {
         return (x + torch::arange(8) * 1e3).softmax(-1).log();
       })},
      {"0 / 0, a norm of 0",
       {Verdict::division, "div", "conv2"},
       pooled([=](auto& x) { return zero(x) / zero(x).norm(); })},
      {"1 / 0", {Verdict::division, "div", "conv2"}, pooled([=](auto& x) {
         return 1 / zero(x);
       })},
      {"sqrt of a negative variance",
       {Verdict::root, "sqrt", "bn1"},
       features([=](auto& x) { return (zero(x) - 1e-9).sqrt(); })},
      {"rsqrt(0)", {Verdict::root, "rsqrt", "bn1"}, features([=](auto& x) {
         return zero(x).rsqrt();
       })},
      {"a fractional power of a negative number",
       {Verdict::root, "pow", "bn1"},
       features([=](auto& x) { return (zero(x) - 1).pow(0.5); })},
      {"inf - inf",
       {Verdict::inf_minus_inf, "sub", "bn1"},
       features([](auto& x) { return (x + kInf) - (x + kInf); })},
      {"0 * inf",
       {Verdict::inf_minus_inf, "mul", "bn1"},
       features([=](auto& x) { return zero(x) * torch::full({1}, kInf); })},
      {"standard deviation of one sample",
       {Verdict::invalid_operation, "std", "conv2"},
       pooled([](auto& x) { return x + x.slice(0, 0, 1).std(0); })},
      {"a fully masked row",
       {Verdict::masked_row, "_softmax", "blocks.1"},
       in_text([](auto& net, Trial&) {
         net.block(1).scores = [](const at::Tensor& x) {
           const auto row = torch::arange(6) == 2;
           return x.masked_fill(row.unsqueeze(-1), -kInf);
         };
       })},
      {"a fully masked row in bf16",
       {Verdict::masked_row, "_softmax", "blocks.0"},
       in_text(
           [](auto& net, Trial&) {
             net.block(0).scores = [](const at::Tensor& x) {
               return x.masked_fill(torch::ones({6, 6}, at::kBool), -kInf);
             };
           },
           at::kBFloat16)},
      {"a constant row under a norm without eps",
       {Verdict::invalid_operation, "native_layer_norm", "blocks.1"},
       hidden([](auto& x) {
         return torch::layer_norm(x * 0, {16}, {}, {}, 0.0);
       })},
  };
}

std::vector<PlantedFault> faults_of_slopes() {
  return {
      {"sqrt at 0",
       {Verdict::singular_gradient, "sqrt", "bn1"},
       features([](auto& x) { return (x * 0).sqrt() + x; })},
      {"sqrt at 0 behind where",
       {Verdict::singular_gradient, "sqrt", "blocks.1"},
       hidden([](auto& x) {
         return torch::where(x > 0, (x * (x > 0)).sqrt(), x);
       })},
      {"variance of a constant under a root",
       {Verdict::singular_gradient, "sqrt", "conv2"},
       pooled([](auto& x) { return x + (x * 0).var().sqrt(); })},
      {"a power below 1 at 0",
       {Verdict::singular_gradient, "pow", "conv2"},
       pooled([](auto& x) { return x + (x * 0).pow(0.5); })},
      {"sqrt at 0 in bf16",
       {Verdict::singular_gradient, "sqrt", "bn1"},
       features([](auto& x) { return (x * 0).sqrt() + x; }, at::kBFloat16)},
  };
}

std::vector<PlantedFault> faults_of_range() {
  return {
      {"exp overflow",
       {Verdict::forward_overflow, "exp", "conv2"},
       pooled([](auto& x) { return (x + 1000).exp(); }),
       true},
      {"features beyond fp16",
       {Verdict::forward_overflow, "mul", "bn1"},
       features([](auto& x) { return x.to(at::kHalf) * 6e4; }, at::kHalf),
       true},
      {"a sum in fp16",
       {Verdict::forward_overflow, "sum", "conv2"},
       pooled([](auto& x) {
         const auto many = torch::full({100}, 1000.0, at::kHalf);
         return x + many.mul(x.mean().to(at::kHalf) * 0 + 1).sum();
       }),
       true},
      {"an input beyond fp16",
       {Verdict::forward_overflow, "copy|_to_copy", "conv1"},
       in_conv([](auto&, Trial& t) { t.input.mul_(1e6); }, at::kHalf)},
      {"a weight beyond fp16",
       {Verdict::forward_overflow, "copy|_to_copy", "conv2"},
       in_conv(
           [](auto& net, Trial&) { set(net.conv2->weight, 1e6); }, at::kHalf)},
      {"attention logits beyond fp16",
       {Verdict::forward_overflow, "copy|bmm", "blocks.0"},
       in_text(
           [](auto& net, Trial&) { multiply(net.block(0).qkv->weight, 1e3); },
           at::kHalf)},
      {"an eps that is 0 in fp16",
       {Verdict::division, "div", "blocks.1"},
       hidden([](auto& x) {
         const auto half = (x * 0).to(at::kHalf);
         return (half / (half.abs() + 1e-8)).to(at::kFloat);
       })},
      {"fp16 gradients beyond fp16, no scaler",
       {Verdict::backward_overflow, "", ""},
       in_conv([](auto&, Trial& t) { scale_loss(t, 1e9); }, at::kHalf)},
      {"overflow with the scale at its floor",
       {Verdict::scale_at_floor, "", ""},
       in_conv(
           [](auto& net, Trial& t) {
             scale_loss(t, 1e9);
             t.scaler = GradScalerOptions{.init_scale = 1};
             t.optimizer = std::make_shared<torch::optim::SGD>(
                 net.parameters(), torch::optim::SGDOptions(0.1));
           },
           at::kHalf)},
      {"gradients below fp16",
       {Verdict::gradient_underflow, "", ""},
       in_conv([](auto&, Trial& t) { scale_loss(t, 1e-9); }, at::kHalf)},
  };
}

// A scripted net: `body` makes y of h, the result of its layer.
Run scripted(const std::string& body, at::ScalarType dtype = at::kFloat) {
  return [body, dtype] {
    torch::jit::Module layer("__torch__.Layer");
    layer.register_parameter(
        "weight", torch::randn({4, 4}).requires_grad_(), false);
    layer.define(
        "def forward(self, x):\n  return torch.matmul(x, self.weight)\n");
    torch::jit::Module script("__torch__.Scripted");
    script.register_module("layer", layer);
    script.define(
        "def forward(self, x):\n"
        "  h = self.layer.forward(x)\n" +
        body + "  return y.float().sum()\n");
    ScriptModule net(script);
    Trial trial{
        .dtype = dtype,
        .input = torch::randn({6, 4}),
        .loss = [&net](const at::Tensor& x) { return net.forward(x); }};
    return run_trial(net, trial);
  };
}

std::vector<PlantedFault> faults_of_scripts() {
  return {
      {"log(0) in a script",
       {Verdict::logarithm, "log", "layer"},
       scripted("  y = torch.log(h - h)\n")},
      {"0 / 0 in a script",
       {Verdict::division, "div", "layer"},
       scripted("  y = (h - h) / (h - h)\n")},
      {"sqrt at 0 in a script",
       {Verdict::singular_gradient, "sqrt", "layer"},
       scripted("  y = torch.sqrt(h - h)\n", at::kBFloat16)},
      {"overflow in a script in fp16",
       {Verdict::forward_overflow, "mul", "layer"},
       scripted("  y = h * 60000.0 * 60000.0\n", at::kHalf)},
  };
}

std::vector<PlantedFault> faults_in_recomputed_blocks() {
  return {
      {"log(0) in a recomputed block",
       {Verdict::logarithm, "log", "conv2"},
       pooled([](auto& x) {
         return checkpoint(
             [](const at::Tensor& y) { return (y * 0).log(); }, x);
       })},
      {"sqrt at 0 in a recomputed block",
       {Verdict::singular_gradient, "sqrt", "conv2"},
       pooled([](auto& x) {
         return checkpoint(
             [](const at::Tensor& y) { return (y * 0).sqrt() + y; }, x);
       })},
  };
}

std::vector<PlantedFault> faults_of_optimizers() {
  return {
      {"an exploding learning rate",
       {Verdict::optimizer, "", ""},
       in_conv([](auto& net, Trial& t) {
         t.steps = 30;
         t.optimizer = std::make_shared<torch::optim::SGD>(
             net.parameters(), torch::optim::SGDOptions(1e20));
       })},
      {"a learning rate beyond fp32 in a fused step",
       {Verdict::optimizer, "", ""},
       in_conv([](auto& net, Trial& t) {
         t.steps = 3;
         t.optimizer = std::make_shared<optim::AdamW>(
             net.parameters(), optim::AdamWOptions{.lr = 1e39});
       })},
      {"Adam's eps, which is 0 in fp16",
       {Verdict::optimizer, "addcdiv", ""},
       in_text([](auto& net, Trial& t) {
         net.to(at::kHalf);
         t.steps = 3;
         t.optimizer = std::make_shared<torch::optim::Adam>(
             net.parameters(), torch::optim::AdamOptions(1e-3));
       })},
  };
}

} // namespace

std::vector<PlantedFault> every_fault() {
  std::vector<PlantedFault> all;
  for (auto group :
       {faults_of_data_and_state(),
        faults_of_operations(),
        faults_of_slopes(),
        faults_of_range(),
        faults_of_scripts(),
        faults_in_recomputed_blocks(),
        faults_of_optimizers()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

} // namespace ampkit::diagnose
