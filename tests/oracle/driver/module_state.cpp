#include <ampkit/io/module_state.h>

#include <torch/nn/modules.h>

#include <ampkit/io/safetensors.h>
#include <ampkit/io/torch_state.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

namespace nn = torch::nn;

// Named like the nested Sequential of Python: in C++ a Sequential cannot hold
// another one.
struct InnerImpl : nn::Module {
  InnerImpl() {
    convolution = register_module(
        "0", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).bias(false)));
    norm = register_module("1", nn::GroupNorm(nn::GroupNormOptions(2, 6)));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    return norm->forward(convolution->forward(input));
  }

  nn::Conv2d convolution{nullptr};
  nn::GroupNorm norm{nullptr};
};
TORCH_MODULE(Inner);

// The same as Net in test_module_state.py.
struct Net : nn::Module {
  Net() {
    stem = register_module(
        "stem",
        nn::Sequential(
            nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)),
            nn::BatchNorm2d(4),
            nn::ReLU(),
            Inner()));
    lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(6, 5)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({5})));
    head = register_module("head", nn::Linear(5, 2));
    offset = register_parameter("offset", torch::zeros({2}));
    gain = register_buffer("gain", torch::zeros({2}));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const auto image = stem->forward(input);
    const auto sequence = image.mean(3).permute({2, 0, 1});
    const auto last = std::get<0>(lstm->forward(sequence))[-1];
    return (head->forward(norm->forward(last)) + offset) * gain;
  }

  nn::Sequential stem{nullptr};
  nn::LSTM lstm{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
  torch::Tensor offset;
  torch::Tensor gain;
};

io::StateDict read_weights(const std::string& path) {
  if (path.ends_with(".pt")) {
    return io::to_state_dict(io::load_torch_state(path));
  }
  io::StateDict weights;
  for (const auto& [name, tensor] : io::load_safetensors(path)) {
    weights.set(name, tensor);
  }
  return weights;
}

// module_state WEIGHTS INPUT OUTPUT STATE [PREFIX]: loads, runs one forward in
// training and one in evaluation mode, and writes their outputs and the state
// after. WEIGHTS: safetensors, or of torch.save if it ends in .pt, whose names
// may have a PREFIX more.
void run_module_state(std::span<const std::string> args) {
  TORCH_CHECK(
      args.size() == 4 || args.size() == 5,
      "usage: module_state WEIGHTS INPUT OUTPUT STATE [PREFIX]");
  Net net;
  io::LoadModuleStateOptions options;
  if (args.size() == 5) {
    options.rename = io::replace_prefixes({{args[4], ""}});
  }
  io::load_module_state(net, read_weights(args[0]), options);
  const auto input = io::load_safetensors(args[1]).front().second;
  const auto training = net.forward(input);
  net.eval();
  const auto evaluation = net.forward(input);
  io::save_safetensors(
      args[2], {{"training", training}, {"evaluation", evaluation}});
  io::NamedTensors state;
  const auto after = io::module_state(net);
  for (const auto& [name, value] : after.entries()) {
    state.emplace_back(name, std::get<at::Tensor>(value));
  }
  io::save_safetensors(args[3], state);
}

const Command kModuleState{"module_state", run_module_state};

} // namespace
} // namespace ampkit::oracle
