// A run that can be killed at any moment and goes on where it was, ending in
// the same weights to the last bit.
//
//     resume DIRECTORY STEPS
//
// trains until STEPS in all, from the latest checkpoint in DIRECTORY if there
// is one.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include <ampkit/ampkit.h>
#include <torch/torch.h>

namespace {

namespace io = ampkit::io;

constexpr int64_t kCheckpointEvery = 20;

// Everything that the next step depends on, random numbers included.
struct Run {
  Run() {
    state.add("model", *model);
    state.add("optimizer", optimizer);
    state.add("scaler", scaler);
    state.add("step", step);
  }

  torch::nn::Sequential model{
      torch::nn::Linear(16, 64),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.1),
      torch::nn::Linear(64, 1)};
  ampkit::optim::AdamW optimizer{ampkit::optim::named(*model), {.lr = 1e-2}};
  ampkit::GradScaler scaler;
  int64_t step = 0;
  io::TrainingState state;
};

double train_step(Run& run) {
  const auto x = torch::randn({32, 16});
  const auto y = x.square().mean(1, /*keepdim=*/true);
  torch::Tensor loss;
  {
    ampkit::Autocast autocast(torch::kCPU, torch::kHalf);
    loss = torch::mse_loss(run.model->forward(x), y);
  }
  run.scaler.scale(loss).backward();
  run.scaler.step(run.optimizer);
  run.scaler.update();
  run.optimizer.zero_grad();
  ++run.step;
  return loss.item<double>();
}

void train(const char* directory, int64_t steps) {
  torch::manual_seed(0);
  Run run;
  io::CheckpointDirectory checkpoints(directory, {.keep_last = 2});
  if (const auto loaded = checkpoints.load_latest_intact()) {
    run.state.load_state_dict(loaded->state);
    std::printf("resumed at step %" PRId64 "\n", run.step);
  }
  double loss = 0;
  while (run.step < steps) {
    loss = train_step(run);
    if (run.step % kCheckpointEvery == 0) {
      checkpoints.save(run.step, run.state.state_dict());
    }
  }
  double sum = 0;
  for (const auto& parameter : run.model->parameters()) {
    sum += parameter.sum().item<double>();
  }
  std::printf(
      "step %" PRId64 "  loss %.4f  sum of weights %.17g\n",
      run.step,
      loss,
      sum);
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: resume DIRECTORY STEPS\n");
    return 2;
  }
  try {
    train(argv[1], std::atoll(argv[2]));
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "resume: error: %s\n", error.what_without_backtrace());
    return 1;
  }
}
