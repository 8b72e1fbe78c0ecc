#include "train/evaluate.h"

#include <ampkit/amp/autocast.h>
#include <torch/torch.h>

namespace ampkit::zoo {

Evaluation evaluate(
    const Model& model,
    ImageLoader& loader,
    c10::Device device,
    const Precision& precision,
    const AutocastOptions& region) {
  const torch::NoGradGuard no_grad;
  model.module->eval();
  auto loss = torch::zeros({}, torch::dtype(torch::kDouble).device(device));
  auto right = torch::zeros({}, torch::dtype(torch::kLong).device(device));
  int64_t samples = 0;
  loader.start_epoch(0);
  while (auto batch = loader.next()) {
    const auto target = batch->target.to(device, /*non_blocking=*/true);
    torch::Tensor logits;
    {
      const Autocast autocast(device, precision, region);
      logits = model.forward(batch->input.to(device, /*non_blocking=*/true));
    }
    logits = logits.to(torch::kFloat);
    loss += torch::cross_entropy_loss(logits, target, {}, at::Reduction::Sum);
    right += logits.argmax(1).eq(target).sum();
    samples += target.size(0);
  }
  model.module->train();
  const auto count = static_cast<double>(samples);
  return {
      .loss = loss.item<double>() / count, // the one wait for the device
      .accuracy = static_cast<double>(right.item<int64_t>()) / count,
      .samples = samples};
}

} // namespace ampkit::zoo
