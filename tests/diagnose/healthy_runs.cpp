#include "diagnose/planted_faults.h"

#include <ampkit/amp/recompute.h>
#include <ampkit/optim/adamw.h>

namespace ampkit::diagnose {
namespace {

Run healthy_conv(at::ScalarType dtype, double init_scale) {
  return in_conv(
      [init_scale](SmallConvNet& net, Trial& t) {
        t.steps = 20;
        t.optimizer = std::make_shared<optim::AdamW>(
            net.parameters(), optim::AdamWOptions{.lr = 1e-3});
        if (init_scale > 0) {
          t.scaler = GradScalerOptions{.init_scale = init_scale};
        }
      },
      dtype);
}

Run healthy_text(at::ScalarType dtype, double init_scale) {
  return in_text(
      [init_scale](SmallTransformer& net, Trial& t) {
        t.steps = 20;
        t.optimizer = std::make_shared<torch::optim::Adam>(
            net.parameters(), torch::optim::AdamOptions(1e-3));
        if (init_scale > 0) {
          t.scaler = GradScalerOptions{.init_scale = init_scale};
        }
      },
      dtype);
}

} // namespace

std::vector<HealthyRun> healthy_runs() {
  std::vector<HealthyRun> runs;
  for (const double scale : {0x1p16, 0x1p20, 0x1p24, 0x1p28, 0x1p32}) {
    runs.push_back({"conv, fp16", healthy_conv(at::kHalf, scale)});
    runs.push_back({"transformer, fp16", healthy_text(at::kHalf, scale)});
  }
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    runs.push_back({"conv", healthy_conv(dtype, 0)});
    runs.push_back({"transformer", healthy_text(dtype, 0)});
  }
  runs.push_back({"an unused infinity", features([](auto& x) {
                    const auto unused = (x * 0).log();
                    return x;
                  })});
  runs.push_back(
      {"norm at 0", pooled([](auto& x) { return x + (x * 0).norm(); })});
  runs.push_back(
      {"a recomputed block in fp16",
       hidden(
           [](auto& x) {
             return checkpoint(
                 [](const at::Tensor& y) {
                   return y.masked_fill(y < 0, -kInf).softmax(-1);
                 },
                 x);
           },
           at::kHalf)});
  runs.push_back(
      {"fused causal attention in bf16",
       hidden(
           [](auto& x) {
             const auto q = x.unsqueeze(1);
             return at::scaled_dot_product_attention(
                        q, q, q, {}, 0.0, true, std::nullopt)
                 .squeeze(1);
           },
           at::kBFloat16)});
  // LibTorch gives zeros there.
  runs.push_back({"a fully masked row in fused attention", hidden([](auto& x) {
                    const auto q = x.unsqueeze(1);
                    const auto mask = torch::full({6, 6}, -kInf);
                    return at::scaled_dot_product_attention(
                               q, q, q, mask, 0.0, false, std::nullopt)
                        .squeeze(1);
                  })});
  runs.push_back(
      {"an LSTM in fp16",
       hidden(
           [](auto& x) {
             torch::nn::LSTM lstm(
                 torch::nn::LSTMOptions(16, 16).batch_first(true));
             return std::get<0>(lstm->forward(x.to(at::kFloat)));
           },
           at::kHalf)});
  runs.push_back({"a second derivative", hidden([](auto& x) {
                    const auto y = x.detach().requires_grad_();
                    const auto slope = torch::autograd::grad(
                        {y.pow(3).sum()}, {y}, {}, true, true);
                    return x + slope[0] * 0.1;
                  })});
  runs.push_back({"a selected infinity", pooled([](auto& x) {
                    return torch::where(x > kInf, kInf, x);
                  })});
  runs.push_back({"dropout", features([](auto& x) {
                    return torch::dropout(x, /*p=*/0.5, /*train=*/true);
                  })});
  runs.push_back({"clamped log", pooled([](auto& x) {
                    return (x * 0).clamp_min(1e-6).log() + x;
                  })});
  runs.push_back({"memory that was not written", pooled([](auto& x) {
                    auto memory = torch::empty({1000});
                    return x + memory.zero_().sum();
                  })});
  return runs;
}

} // namespace ampkit::diagnose
