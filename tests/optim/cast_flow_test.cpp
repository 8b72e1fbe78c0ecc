// The documented way to 16-bit weights: cast_parameters, Autocast, GradScaler
// and AdamW with masters, on networks with norm layers that stay in fp32.

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cast_parameters.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

struct ConvNetImpl : nn::Module {
  ConvNetImpl() {
    using Options = nn::Conv2dOptions;
    conv1 = register_module("conv1", nn::Conv2d(Options(1, 8, 3).padding(1)));
    bn1 = register_module("bn1", nn::BatchNorm2d(8));
    conv2 = register_module("conv2", nn::Conv2d(Options(8, 8, 3).padding(1)));
    bn2 = register_module("bn2", nn::BatchNorm2d(8));
    head = register_module("head", nn::Linear(8, 4));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(bn1(conv1(x)));
    x = torch::relu(x + bn2(conv2(x)));
    return head(x.mean({2, 3}));
  }
  static torch::Tensor inputs() { return torch::randn({16, 1, 8, 8}); }
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Linear head{nullptr};
};

struct TransformerBlockImpl : nn::Module {
  TransformerBlockImpl() {
    const auto norm = [] { return nn::LayerNorm(nn::LayerNormOptions({16})); };
    embedding = register_module("embedding", nn::Embedding(10, 16));
    norm1 = register_module("norm1", norm());
    qkv = register_module("qkv", nn::Linear(16, 48));
    out = register_module("out", nn::Linear(16, 16));
    norm2 = register_module("norm2", norm());
    up = register_module("up", nn::Linear(16, 32));
    down = register_module("down", nn::Linear(32, 16));
    head = register_module("head", nn::Linear(16, 4));
  }
  torch::Tensor attention(const torch::Tensor& x) {
    const auto parts = qkv(x).unflatten(-1, {3, 2, 8}).permute({2, 0, 3, 1, 4});
    const auto y =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return out(y.transpose(1, 2).flatten(2));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    auto x = embedding(tokens);
    x = x + attention(norm1(x));
    x = x + down(torch::gelu(up(norm2(x))));
    return head(x.mean(1));
  }
  static torch::Tensor inputs() { return torch::randint(10, {16, 6}); }
  nn::Embedding embedding{nullptr};
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr},
      head{nullptr};
};

/// First and last loss of 40 steps on one batch.
template <class Network>
std::pair<float, float> train(const Precision& precision, const OpPolicy& ops) {
  torch::manual_seed(17);
  const auto network = std::make_shared<Network>();
  const auto x = Network::inputs();
  const auto target = torch::arange(16) % 4;
  cast_parameters(*network, precision);
  optim::AdamW adamw(network->parameters(), {.lr = 1e-2});
  GradScaler scaler(precision);
  std::vector<float> losses;
  for (int step = 0; step < 40; ++step) {
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, precision, {.ops = ops});
      loss =
          at::cross_entropy_loss(network->forward(x).to(torch::kFloat), target);
    }
    losses.push_back(loss.template item<float>());
    scaler.scale(loss).backward();
    EXPECT_TRUE(scaler.step(adamw, {.max_norm = 1.0}).stepped());
    scaler.update();
    adamw.zero_grad();
  }
  for (const auto& item : network->named_parameters()) {
    const bool norm =
        item.key().starts_with("bn") || item.key().starts_with("norm");
    EXPECT_EQ(
        item.value().scalar_type(), norm ? torch::kFloat : precision.parameters)
        << item.key();
    EXPECT_EQ(adamw.master(item.value()).scalar_type(), torch::kFloat);
  }
  return {losses.front(), losses.back()};
}

// Under the strict policy norm layers give fp32, which the next layer casts.
class CastFlowTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  // Near the fp32 run: the last loss within 2 % of what it fell.
  template <class Network>
  static void expect_trains_as_in_fp32() {
    const auto precision = Precision::parse(std::get<0>(GetParam()));
    const auto ops = OpPolicy::parse(std::get<1>(GetParam()));
    const auto [first, last] = train<Network>(precision, ops);
    const auto [fp32_first, fp32_last] = train<Network>(Precision::fp32(), ops);
    ASSERT_LT(fp32_last, 0.5 * fp32_first);
    EXPECT_NEAR(last, fp32_last, 0.02 * (fp32_first - fp32_last));
  }
};

INSTANTIATE_TEST_SUITE_P(
    PresetsAndPolicies,
    CastFlowTest,
    ::testing::Combine(
        ::testing::Values(
            "fp16-mixed", "fp16-master", "bf16-mixed", "bf16-master"),
        ::testing::Values("pytorch", "strict")));

TEST_P(CastFlowTest, ConvNetWithBatchNormTrainsAsInFp32) {
  expect_trains_as_in_fp32<ConvNetImpl>();
}

TEST_P(CastFlowTest, TransformerBlockWithLayerNormTrainsAsInFp32) {
  expect_trains_as_in_fp32<TransformerBlockImpl>();
}

TEST(CastAfterTest, OptimizerMadeAndSteppedBeforeTheCastGoesOnWithMasters) {
  torch::manual_seed(19);
  nn::Linear linear(4, 4);
  optim::AdamW adamw(linear->parameters(), {.lr = 1e-2});
  const auto step = [&] {
    linear->forward(torch::ones({1, 4}, linear->weight.options()))
        .to(torch::kFloat)
        .square()
        .sum()
        .backward();
    adamw.step();
    adamw.zero_grad();
  };
  step();
  cast_parameters(*linear, Precision::bf16_master());
  step();
  EXPECT_EQ(adamw.steps_of(linear->weight), 2);
  const auto master = adamw.master(linear->weight);
  EXPECT_EQ(master.scalar_type(), torch::kFloat);
  EXPECT_TRUE(linear->weight.equal(master.to(torch::kBFloat16)));
}

} // namespace
} // namespace ampkit
