// Goes on with a run of train.py, and leaves a file with which train.py can go
// on again.
//
//     from_python FILE STEPS
//
// trains until STEPS in all, from what is in FILE, and writes FILE anew.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include <ampkit/ampkit.h>
#include <torch/torch.h>

namespace {

namespace io = ampkit::io;
namespace optim = ampkit::optim;

struct Run {
  // Named "0.weight", "0.bias", "2.weight", "2.bias", as in train.py.
  torch::nn::Sequential model{
      torch::nn::Linear(16, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1)};
  // The settings come from the file. The stock kernel is that of fused=True.
  optim::AdamW optimizer{
      optim::named(*model), {.kernel = optim::Kernel::stock}};
  ampkit::GradScaler scaler;
  int64_t step = 0;
};

void load(Run& run, const char* path) {
  const io::TorchValue file = io::load_torch_state(path);
  const io::TorchDict& state = file.dict();
  io::load_module_state(*run.model, io::to_state_dict(state.at("model")));
  optim::load_torch_state_dict(run.optimizer, state.at("optimizer"));
  run.scaler.load_state_dict(io::to_state_dict(state.at("scaler")));
  run.step = state.at("step").integer();
}

void save(const Run& run, const char* path) {
  io::TorchDict state;
  state.set("model", io::to_torch_dict(io::module_state(*run.model)));
  state.set("optimizer", optim::to_torch_state_dict(run.optimizer));
  state.set("scaler", io::to_torch_dict(run.scaler.state_dict()));
  state.set("step", run.step);
  io::save_torch_state(path, state);
}

double train_step(Run& run) {
  // LibTorch's generator gives C++ and Python the same numbers.
  torch::manual_seed(static_cast<uint64_t>(run.step));
  const auto x = torch::randn({32, 16});
  const auto y = x.square().mean(1, /*keepdim=*/true);
  run.optimizer.zero_grad();
  const auto loss = torch::mse_loss(run.model->forward(x), y);
  run.scaler.scale(loss).backward();
  run.scaler.step(run.optimizer);
  run.scaler.update();
  ++run.step;
  return loss.item<double>();
}

void train(const char* path, int64_t steps) {
  Run run;
  load(run, path);
  double loss = 0;
  while (run.step < steps) {
    loss = train_step(run);
  }
  save(run, path);
  double sum = 0;
  for (const auto& parameter : run.model->parameters()) {
    sum += parameter.sum(torch::kDouble).item<double>();
  }
  std::printf(
      "step %" PRId64 "  loss %.4f  sum of weights %.12f\n",
      run.step,
      loss,
      sum);
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: from_python FILE STEPS\n");
    return 2;
  }
  try {
    train(argv[1], std::atoll(argv[2]));
  } catch (const c10::Error& error) {
    std::fprintf(
        stderr, "from_python: error: %s\n", error.what_without_backtrace());
    return 1;
  }
}
