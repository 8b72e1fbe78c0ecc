// The first training step of a process: peer/startup.py. A program of its own,
// because what it links takes time to load.
#include <iostream>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

int main() {
  at::set_num_threads(1);
  torch::manual_seed(0);
  // One by one: arguments of a call are made in no fixed order, and each
  // layer draws random numbers.
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(64, 128));
  model->push_back(torch::nn::GELU());
  model->push_back(torch::nn::Linear(128, 10));
  const auto x = torch::randn({32, 64});
  const auto y = torch::randint(0, 10, {32});
  ampkit::optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  ampkit::GradScaler scaler;
  torch::Tensor loss;
  {
    ampkit::Autocast autocast(torch::kCPU, torch::kBFloat16);
    loss = at::cross_entropy_loss(model->forward(x), y);
  }
  scaler.scale(loss).backward();
  scaler.step(optimizer);
  scaler.update();
  double weights = 0;
  for (const auto& param : model->parameters()) {
    weights += param.detach().to(torch::kDouble).abs().sum().item<double>();
  }
  std::cout << "{\"loss\": " << loss.item<double>()
            << ", \"sum of weights\": " << weights << "}" << std::endl;
  return 0;
}
