#include "train/evaluate.h"

#include <ampkit/amp/autocast.h>
#include <torch/torch.h>

namespace ampkit::zoo {

Evaluation evaluate(
    const Model& model,
    ImageLoader& loader,
    c10::Device device,
    const Precision& precision,
    const AutocastOptions& region,
    const Ranks& ranks) {
  const torch::NoGradGuard no_grad;
  ranks.share_buffers();
  model.module->eval();
  // Loss, right answers and samples. Counts are exact to 2^53.
  auto sums = torch::zeros({3}, torch::dtype(torch::kDouble).device(device));
  loader.start_epoch(0);
  while (auto batch = loader.next()) {
    const auto target = batch->target.to(device, /*non_blocking=*/true);
    torch::Tensor logits;
    {
      const Autocast autocast(device, precision, region);
      logits = model.forward(batch->input.to(device, /*non_blocking=*/true));
    }
    if (!batch->counts) {
      continue;
    }
    logits = logits.to(torch::kFloat);
    sums[0] +=
        torch::cross_entropy_loss(logits, target, {}, at::Reduction::Sum);
    sums[1] += logits.argmax(1).eq(target).sum();
    sums[2] += target.size(0);
  }
  model.module->train();
  ranks.sum_(sums);
  sums = sums.to(torch::kCPU); // the one wait for the device
  const auto samples = sums[2].item<double>();
  return {
      .loss = sums[0].item<double>() / samples,
      .accuracy = sums[1].item<double>() / samples,
      .samples = static_cast<int64_t>(samples)};
}

} // namespace ampkit::zoo
