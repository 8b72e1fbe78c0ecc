#include <ampkit/amp/precision_controller.h>

#include "amp/controlled_training.h"
#include "support/errors.h"

namespace ampkit {
namespace {

using Training = ControlledTraining<ControlledNet>;
namespace nn = torch::nn;

// The moves of 60 steps with plants, whose controller is replaced before step
// `swap_at` by a new one that loads its state.
std::vector<PrecisionMove> moves_with_swap(int swap_at) {
  auto options = quick_options();
  options.sample_interval = 2;
  Training training(options);
  for (int i = 0; i < 60; ++i) {
    if (i == swap_at) {
      const auto state = training.controller->state_dict();
      training.controller.reset();
      training.controller =
          std::make_unique<PrecisionController>(*training.net, options);
      training.controller->load_state_dict(state);
    }
    if (i % 20 == 5) {
      multiply(training.net->first->weight, 1e6);
    } else if (i % 20 == 11) {
      multiply(training.net->first->weight, 1e-6);
    }
    training.step();
  }
  return training.controller->moves();
}

TEST(PrecisionControllerStateTest, ResumedControllerMakesTheSameMoves) {
  const auto expected = moves_with_swap(-1);
  EXPECT_GE(expected.size(), 4);
  // Within a fail window, after the move, within clean windows.
  for (const int swap_at : {6, 7, 9, 13, 15, 27, 36}) {
    EXPECT_EQ(moves_with_swap(swap_at), expected) << swap_at;
  }
}

TEST(PrecisionControllerStateTest, StateKeepsStatisticsAndComesBackTheSame) {
  Training training;
  training.steps(4);
  const auto state = training.controller->state_dict();
  PrecisionController other(*training.net, quick_options());
  other.load_state_dict(state);
  const auto a = training.controller->statistics();
  const auto b = other.statistics();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].module, b[i].module);
    EXPECT_EQ(a[i].dtype, b[i].dtype);
    EXPECT_EQ(a[i].output, b[i].output);
    EXPECT_EQ(a[i].output_gradient, b[i].output_gradient);
    EXPECT_EQ(a[i].parameter_gradient, b[i].parameter_gradient);
    EXPECT_EQ(a[i].output_amax, b[i].output_amax);
    EXPECT_EQ(a[i].gradient_amax, b[i].gradient_amax);
  }
}

TEST(PrecisionControllerStateTest, DamagedStateIsRefusedAndChangesNothing) {
  Training training;
  multiply(training.net->first->weight, 1e6);
  training.steps(3);
  const auto good = training.controller->state_dict();
  const auto moves = training.controller->moves();
  const auto with = [&](const char* name, io::StateValue value) {
    auto state = good;
    state.set(name, std::move(value));
    return state;
  };
  auto& controller = *training.controller;
  EXPECT_ERROR(controller.load_state_dict({}), c10::Error, "layer_count");
  EXPECT_ERROR(
      controller.load_state_dict(with("layer_count", int64_t{3})),
      c10::Error,
      "a network of 3 layers, this one has 4");
  EXPECT_ERROR(
      controller.load_state_dict(with("layers.1.module", std::string("x"))),
      c10::Error,
      "layer 1 of the state is 'x' (low), here it is 'norm' (low)");
  EXPECT_ERROR(
      controller.load_state_dict(with("layers.1.stage", std::string("fixed"))),
      c10::Error,
      "'norm' (fixed), here it is 'norm' (low)");
  EXPECT_ERROR(
      controller.load_state_dict(with("layers.1.stage", std::string("up"))),
      c10::Error,
      "stage must be low, watched",
      "got 'up'");
  EXPECT_ERROR(
      controller.load_state_dict(with("layers.1.clean", int64_t{-1})),
      c10::Error,
      "'clean' must not be negative, got -1");
  EXPECT_ERROR(
      controller.load_state_dict(with("layers.1.output", torch::zeros({2}))),
      c10::Error,
      "'output' must be a float64 vector [5]");
  EXPECT_ERROR(
      controller.load_state_dict(
          with("groups", torch::tensor({0.0, 5.0}, torch::kDouble))),
      c10::Error,
      "'groups' names layers");
  EXPECT_ERROR(
      controller.load_state_dict(with("moves.0.to", std::string("Byte"))),
      c10::Error,
      "no dtype of layers is called 'Byte'");
  EXPECT_EQ(controller.moves(), moves);
  EXPECT_EQ(controller.modules().entries()[0].dtype, torch::kFloat);
}

void expect_refused(
    const PrecisionControllerOptions& options, const char* message) {
  const nn::Linear net(4, 4);
  EXPECT_ERROR(
      PrecisionController(*net, options),
      c10::ValueError,
      "PrecisionController: ",
      message);
}

TEST(PrecisionControllerStateTest, OptionsOutOfRangeNameTheField) {
  expect_refused({.dtype = torch::kFloat}, "dtype must be Half or BFloat16");
  expect_refused({.sample_interval = 0}, "sample_interval must be >= 1, got 0");
  expect_refused({.sample_elements = 0}, "sample_elements must be >= 1");
  expect_refused({.overflow_share = -1}, "overflow_share must be in [0, 1]");
  expect_refused({.underflow_share = 2}, "underflow_share must be in [0, 1]");
  expect_refused({.subnormal_share = NAN}, "subnormal_share must be in [0, 1]");
  expect_refused({.overflow_patience = 0}, "overflow_patience must be >= 1");
  expect_refused({.fail_window = 0}, "fail_window must be >= 1");
  expect_refused({.clean_window = 0}, "clean_window must be >= 1");
  expect_refused({.window_growth = 0.5}, "window_growth must be finite and >=");
  expect_refused({.max_clean_window = 2}, "max_clean_window must be >= 20");
  expect_refused({.return_margin = 0}, "return_margin must be finite and >= 1");
  expect_refused({.amax_history_len = 0}, "amax_history_len must be >= 1");
  expect_refused(
      {.rollout = {{.interval = 0}}}, "rollout.interval must be >= 1");
  expect_refused({.rollout = {{.group = 0}}}, "rollout.group must be >= 1");
  expect_refused(
      {.rollout = {{.loss_bound = 0}}}, "rollout.loss_bound must be > 0");
  expect_refused(
      {.rollout = {{.gradient_bound = NAN}}},
      "rollout.gradient_bound must be > 0");
}

TEST(PrecisionControllerStateTest, NetworkWithoutLayersIsRefused) {
  EXPECT_ERROR(
      PrecisionController{*nn::ReLU()}, c10::ValueError, "has no parameters");
}

struct ControlledBlock : nn::Module {
  ControlledBlock() {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({32})));
    qkv = register_module("qkv", nn::Linear(32, 96));
    out = register_module("out", nn::Linear(32, 32));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({32})));
    up = register_module("up", nn::Linear(32, 64));
    down = register_module("down", nn::Linear(64, 32));
  }
  at::Tensor forward(at::Tensor x) {
    const auto heads = qkv->forward(norm1->forward(x))
                           .view({x.size(0), x.size(1), 3, 2, 16})
                           .permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(
        heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    x = x + out->forward(mixed.transpose(1, 2).reshape(x.sizes()));
    return x + down->forward(torch::gelu(up->forward(norm2->forward(x))));
  }
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};

struct Transformer : nn::Module {
  Transformer() {
    embedding = register_module("embedding", nn::Embedding(17, 32));
    blocks = register_module(
        "blocks",
        nn::ModuleList(
            std::make_shared<ControlledBlock>(),
            std::make_shared<ControlledBlock>()));
    head = register_module("head", nn::Linear(32, 17));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = embedding->forward(tokens);
    for (const auto& block : *blocks) {
      x = torch::dropout(block->as<ControlledBlock>()->forward(x), 0.1, true);
    }
    return head->forward(x);
  }
  nn::Embedding embedding{nullptr};
  nn::ModuleList blocks;
  nn::Linear head{nullptr};
};

TEST(PrecisionControllerHealthTest, HealthyTransformerSeesNoMoveIn200Steps) {
  torch::manual_seed(1);
  const auto net = std::make_shared<Transformer>();
  PrecisionController controller(*net, {.sample_interval = 1});
  torch::optim::AdamW optimizer(
      net->parameters(), torch::optim::AdamWOptions(3e-3));
  GradScaler scaler;
  const auto tokens = torch::arange(8 * 13).remainder(17).view({8, 13});
  float last = 0;
  for (int i = 0; i < 200; ++i) {
    at::Tensor loss;
    {
      const Autocast autocast(
          torch::kCPU, torch::kHalf, {.modules = controller.modules()});
      const auto logits = net->forward(tokens.slice(1, 0, 12));
      loss = torch::nn::functional::cross_entropy(
          logits.reshape({-1, 17}).to(torch::kFloat),
          tokens.slice(1, 1).reshape({-1}));
    }
    optimizer.zero_grad();
    scaler.scale(loss).backward();
    const auto result = scaler.step(optimizer);
    scaler.update();
    controller.update(result);
    last = loss.item<float>();
  }
  EXPECT_LT(last, 0.5);
  for (const auto& move : controller.moves()) {
    ADD_FAILURE() << move.step << " " << move.module << ": " << move.reason;
  }
}

TEST(PrecisionControllerHealthTest, HealthyPerceptronSeesNoMoveIn200Steps) {
  Training training({.sample_interval = 1});
  for (int i = 0; i < 200; ++i) {
    training.batch = torch::randn({16, 32});
    training.step();
  }
  for (const auto& move : training.controller->moves()) {
    ADD_FAILURE() << move.step << " " << move.module << ": " << move.reason;
  }
}

} // namespace
} // namespace ampkit
