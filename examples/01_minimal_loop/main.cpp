// A whole mixed-precision training loop: two interleaved spirals, a small
// perceptron, fp16 with dynamic loss scaling.
//
//     minimal_loop [PRECISION]        fp32, bf16-mixed or fp16-mixed (default)
#include <cmath>
#include <cstdio>
#include <numbers>

#include <ampkit/ampkit.h>
#include <torch/torch.h>

namespace {

struct Data {
  torch::Tensor input; // fp32 [n, 2]
  torch::Tensor target; // int64 [n], 0 or 1: which spiral
};

Data make_spirals(int64_t points_each) {
  Data data;
  const auto turn = torch::rand({2 * points_each}).sqrt();
  data.target = torch::arange(2 * points_each).remainder(2);
  const auto angle = (3 * turn + data.target) * std::numbers::pi;
  data.input = torch::stack({turn * angle.cos(), turn * angle.sin()}, 1);
  return data;
}

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(
      torch::nn::Linear(2, 128),
      torch::nn::GELU(),
      torch::nn::Linear(128, 128),
      torch::nn::GELU(),
      torch::nn::Linear(128, 2));
}

// The loss of one step: forward in low precision, backward likewise, the
// update in FP32.
double train_step(
    torch::nn::Sequential& model,
    const Data& data,
    const ampkit::Precision& precision,
    ampkit::optim::AdamW& optimizer,
    ampkit::GradScaler& scaler) {
  torch::Tensor loss;
  {
    ampkit::Autocast autocast(torch::kCPU, precision);
    loss = torch::cross_entropy_loss(model->forward(data.input), data.target);
  }
  scaler.scale(loss).backward();
  scaler.step(optimizer, {.max_norm = 1.0});
  scaler.update();
  optimizer.zero_grad();
  return loss.item<double>();
}

double accuracy(torch::nn::Sequential& model, const Data& data) {
  torch::NoGradGuard no_grad;
  const auto predicted = model->forward(data.input).argmax(1);
  return predicted.eq(data.target).to(torch::kDouble).mean().item<double>();
}

void train(const ampkit::Precision& precision) {
  torch::manual_seed(0);
  const auto training = make_spirals(300);
  const auto held_out = make_spirals(300);
  auto model = make_model();
  ampkit::optim::AdamW optimizer(model->parameters(), {.lr = 5e-3});
  ampkit::GradScaler scaler(precision, {.growth_interval = 20});

  std::printf("step   loss  scale\n");
  for (int step = 0; step <= 400; ++step) {
    const double loss =
        train_step(model, training, precision, optimizer, scaler);
    if (step % 100 == 0) {
      std::printf("%4d %6.3f %6.0f\n", step, loss, scaler.get_scale());
    }
  }
  std::printf(
      "accuracy on unseen points: %.1f %%, %ld steps skipped\n",
      100 * accuracy(model, held_out),
      scaler.steps_skipped());
}

} // namespace

int main(int argc, char** argv) {
  try {
    train(ampkit::Precision::parse(argc > 1 ? argv[1] : "fp16-mixed"));
  } catch (const c10::Error& error) {
    std::fprintf(
        stderr, "minimal_loop: error: %s\n", error.what_without_backtrace());
    return 1;
  }
}
