#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

namespace nn = torch::nn;

// make_network() of test_training.py.
nn::Sequential make_network() {
  using Conv = nn::Conv2dOptions;
  return nn::Sequential(
      nn::Conv2d(Conv(1, 8, 3).stride(2).padding(1)),
      nn::BatchNorm2d(8),
      nn::ReLU(),
      nn::Conv2d(Conv(8, 16, 3).stride(2).padding(1).bias(false)),
      nn::ReLU(),
      nn::Flatten(),
      nn::Linear(16 * 49, 64),
      nn::LayerNorm(nn::LayerNormOptions({64})),
      nn::GELU(),
      nn::Linear(64, 10));
}

optim::Kernel parse_kernel(const std::string& name) {
  return name == "stock"     ? optim::Kernel::stock
         : name == "highway" ? optim::Kernel::highway
                             : optim::Kernel::automatic;
}

// training PRECISION KERNEL FOLDER OUTPUT
void train_network(std::span<const std::string> args) {
  const auto precision = Precision::parse(args[0]);
  auto network = make_network();
  io::StateDict weights;
  for (auto& [name, tensor] :
       io::load_safetensors(args[2] + "/weights.safetensors")) {
    weights.set(name, tensor);
  }
  io::load_module_state(*network, weights);
  const io::SafetensorsReader batches(args[2] + "/batches.safetensors");
  const auto x = batches.copy("x");
  const auto y = batches.copy("y");

  optim::AdamW optimizer(
      network->parameters(), {.lr = 1e-3, .kernel = parse_kernel(args[1])});
  GradScaler scaler(precision, {.init_scale = 0x1p24});
  nlohmann::json result;
  for (int64_t step = 0; step < x.size(0); ++step) {
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, precision);
      loss = at::cross_entropy_loss(network->forward(x[step]), y[step]);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    result["losses"].push_back(loss.item<float>());
    result["scales"].push_back(scaler.get_scale());
  }
  result["skipped"] = scaler.steps_skipped();
  write_json(args[3], result);
}

const Command kTraining{"training", train_network};

} // namespace
} // namespace ampkit::oracle
