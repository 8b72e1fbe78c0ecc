// Outputs and gradients against transformers: tests/oracle/test_gpt.py.
#include <ampkit/zoo/models/gpt.h>

#include <cmath>
#include <limits>

#include <torch/torch.h>

#include <ampkit/io/module_state.h>

#include "amp/allocated_bytes.h"
#include "support/errors.h"

namespace ampkit::zoo {
namespace {

/// Two layers, width 8, 11 tokens, at most 6 in a sequence.
GptOptions tiny() {
  return {.vocabulary = 11, .width = 8, .layers = 2, .heads = 2, .length = 6};
}

torch::Tensor some_tokens() {
  return torch::randint(0, 11, {3, 6}, torch::kLong);
}

/// The state of `gpt` as transformers would write it.
io::StateDict transformers_state(const Gpt& gpt) {
  io::StateDict result;
  const auto state = io::module_state(*gpt);
  for (const auto& [name, value] : state.entries()) {
    const auto& tensor = std::get<at::Tensor>(value);
    const bool conv1d = name.starts_with("h.") && tensor.dim() == 2;
    result.set("transformer." + name, (conv1d ? tensor.t() : tensor).clone());
  }
  return result;
}

class GptTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1); }
};

TEST_F(GptTest, NamesAndShapesAreThoseOfTransformers) {
  auto options = tiny();
  options.layers = 1;
  options.tied_head = false;
  const Gpt gpt(options);
  std::vector<std::string> names;
  for (const auto& item : gpt->named_parameters()) {
    names.push_back(item.key());
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "wte.weight",
          "wpe.weight",
          "h.0.ln_1.weight",
          "h.0.ln_1.bias",
          "h.0.attn.c_attn.weight",
          "h.0.attn.c_attn.bias",
          "h.0.attn.c_proj.weight",
          "h.0.attn.c_proj.bias",
          "h.0.ln_2.weight",
          "h.0.ln_2.bias",
          "h.0.mlp.c_fc.weight",
          "h.0.mlp.c_fc.bias",
          "h.0.mlp.c_proj.weight",
          "h.0.mlp.c_proj.bias",
          "ln_f.weight",
          "ln_f.bias",
          "lm_head.weight"}));
  const auto parameters = gpt->named_parameters();
  EXPECT_EQ(
      parameters["h.0.attn.c_attn.weight"].sizes(), at::IntArrayRef({24, 8}));
  EXPECT_EQ(
      parameters["h.0.mlp.c_proj.weight"].sizes(), at::IntArrayRef({8, 32}));
}

TEST_F(GptTest, ATiedHeadIsTheEmbeddingListedOnce) {
  Gpt gpt(tiny());
  EXPECT_FALSE(gpt->named_parameters().contains("lm_head.weight"));
  gpt->forward(some_tokens()).sum().backward();
  // Both uses add to one gradient: tokens that never came get the head's.
  auto weight = gpt->named_parameters()["wte.weight"];
  EXPECT_TRUE((weight.grad().abs().sum(1) > 0).all().item<bool>());
}

TEST_F(GptTest, InitialWeightsAreThoseOfGpt2) {
  const Gpt gpt(GptOptions{.vocabulary = 512, .width = 128, .layers = 8});
  for (const auto& item : gpt->named_parameters()) {
    const auto& [name, value] = item.pair();
    if (value.dim() == 1) {
      const double expected = name.ends_with("bias") ? 0 : 1;
      EXPECT_TRUE(value.eq(expected).all().item<bool>()) << name;
      continue;
    }
    const double deviation = name.ends_with("c_proj.weight") ? 0.005 : 0.02;
    // The deviation of n normal numbers is known to 1 / sqrt(2 n); four times
    // that.
    const double n = static_cast<double>(value.numel());
    EXPECT_NEAR(
        value.std().item<double>(), deviation, 4 * deviation / sqrt(2 * n))
        << name;
    EXPECT_NEAR(value.mean().item<double>(), 0, 4 * deviation / sqrt(n))
        << name;
  }
}

TEST_F(GptTest, LossIsThatOfTheLogitsAndIgnoresMinus100) {
  Gpt gpt(tiny());
  const auto tokens = some_tokens();
  auto targets = some_tokens();
  const auto log_probability = torch::log_softmax(gpt->forward(tokens), -1)
                                   .gather(-1, targets.unsqueeze(-1))
                                   .squeeze(-1);
  // A mean of 18 values of about 2.4.
  EXPECT_NEAR(
      gpt->loss(tokens, targets).item<double>(),
      -log_probability.mean().item<double>(),
      1e-6);
  targets.slice(1, 2).fill_(-100);
  EXPECT_NEAR(
      gpt->loss(tokens, targets).item<double>(),
      -log_probability.slice(1, 0, 2).mean().item<double>(),
      1e-6);
}

/// Loss and, under the names of the parameters, gradients.
io::StateDict loss_and_gradients(
    Gpt& gpt, const torch::Tensor& tokens, const torch::Tensor& targets) {
  gpt->zero_grad();
  const auto loss = gpt->loss(tokens, targets);
  loss.backward();
  io::StateDict result;
  result.set("loss", loss.detach());
  for (const auto& item : gpt->named_parameters()) {
    result.set(item.key(), item.value().grad().clone());
  }
  return result;
}

TEST_F(GptTest, LossInChunksIsTheLossInOnePiece) {
  auto options = tiny();
  Gpt whole(options);
  const auto tokens = some_tokens();
  auto targets = some_tokens();
  targets.slice(1, 4).fill_(-100);
  const auto expected = loss_and_gradients(whole, tokens, targets);
  // 18 rows: the last of 4 parts is shorter, 100 parts are 18.
  for (const int64_t chunks : {2, 4, 100}) {
    SCOPED_TRACE(chunks);
    options.loss_chunks = chunks;
    Gpt parts(options);
    io::load_module_state(*parts, io::module_state(*whole));
    const auto actual = loss_and_gradients(parts, tokens, targets);
    for (const auto& [name, value] : expected.entries()) {
      EXPECT_TRUE(torch::allclose(
          actual.tensor(name), std::get<at::Tensor>(value), 1e-5, 1e-6))
          << name;
    }
  }
}

TEST_F(GptTest, LossInChunksHoldsTheLogitsOfOnePartOnly) {
  GptOptions options = tiny();
  options.vocabulary = 4096; // logits: 18 rows of 16 kB, the rest some kB
  const auto peak = [&](int64_t chunks) {
    options.loss_chunks = chunks;
    Gpt gpt(options);
    gpt->loss(some_tokens(), some_tokens()).backward();
    const auto bytes = std::make_shared<AllocatedBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
    gpt->loss(some_tokens(), some_tokens()).backward();
    return bytes->peak();
  };
  const auto whole = peak(1);
  EXPECT_GT(whole, 2 * 18 * 16384); // logits and their gradient at least
  EXPECT_LT(peak(6), whole - 18 * 16384);
}

TEST_F(GptTest, ATokenSeesNoneThatComesLater) {
  Gpt gpt(tiny());
  const auto tokens = some_tokens();
  const auto changed = tokens.clone();
  changed.select(1, 4).add_(1).remainder_(11);
  const auto before = gpt->forward(tokens);
  const auto after = gpt->forward(changed);
  EXPECT_TRUE(before.slice(1, 0, 4).equal(after.slice(1, 0, 4)));
  EXPECT_FALSE(before.select(1, 4).equal(after.select(1, 4)));
  EXPECT_FALSE(before.select(1, 5).equal(after.select(1, 5)));
}

TEST_F(GptTest, DropoutDropsInTrainingOnly) {
  auto options = tiny();
  options.dropout = 0.5;
  Gpt gpt(options);
  const auto tokens = some_tokens();
  EXPECT_FALSE(gpt->forward(tokens).equal(gpt->forward(tokens)));
  gpt->eval();
  EXPECT_TRUE(gpt->forward(tokens).equal(gpt->forward(tokens)));
}

TEST_F(GptTest, TrainsOnASequenceUntilItKnowsIt) {
  Gpt gpt(tiny());
  const auto tokens = some_tokens();
  const auto targets = some_tokens();
  torch::optim::AdamW optimizer(gpt->parameters(), 1e-2);
  double loss = 0;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    const auto value = gpt->loss(tokens, targets);
    value.backward();
    optimizer.step();
    loss = value.item<double>();
  }
  EXPECT_LT(loss, 0.2); // of ln 11 = 2.4
}

TEST_F(GptTest, StateOfTransformersLoads) {
  const Gpt source(tiny());
  Gpt target(tiny());
  auto state = transformers_state(source);
  // What older files hold besides.
  state.set("transformer.h.0.attn.bias", torch::ones({1, 1, 6, 6}));
  state.set("transformer.h.0.attn.masked_bias", torch::full({}, -1e4));
  state.set("lm_head.weight", state.tensor("transformer.wte.weight"));
  load_transformers_state(*target, state);
  const auto tokens = some_tokens();
  EXPECT_TRUE(target->forward(tokens).equal(Gpt(source)->forward(tokens)));
}

TEST_F(GptTest, StateThatDoesNotFitChangesNothing) {
  Gpt gpt(tiny());
  const auto before = gpt->parameters().front().clone();
  auto state = transformers_state(Gpt(tiny()));
  state.set("lm_head.weight", torch::zeros({11, 8}));
  EXPECT_ERROR(
      load_transformers_state(*gpt, state),
      c10::Error,
      "lm_head.weight differs from wte.weight",
      "tied_head = false");
  auto options = tiny();
  options.layers = 3;
  EXPECT_ERROR(
      load_transformers_state(*gpt, transformers_state(Gpt(options))),
      c10::Error,
      "unexpected: h.2.ln_1.weight");
  EXPECT_TRUE(gpt->parameters().front().equal(before));
}

TEST_F(GptTest, TokensOfAnotherShapeOrDtypeAreRefused) {
  Gpt gpt(tiny());
  EXPECT_ERROR(
      gpt->forward(torch::zeros({1, 7}, torch::kLong)),
      c10::ValueError,
      "Gpt::forward: tokens must be int64 [batch, n] with 1 <= n <= 6",
      "got Long [1, 7]");
  EXPECT_ERROR(gpt->forward(torch::zeros({1, 6})), c10::ValueError, "Float");
  EXPECT_ERROR(
      gpt->forward(torch::zeros({6}, torch::kLong)), c10::ValueError, "[6]");
  EXPECT_ERROR(
      gpt->loss(some_tokens(), torch::zeros({3, 5}, torch::kLong)),
      c10::ValueError,
      "Gpt::loss: targets must be int64 [3, 6] like tokens, got Long [3, 5]");
}

void expect_refused(
    void (*change)(GptOptions& options), const std::string& message) {
  auto options = tiny();
  change(options);
  EXPECT_ERROR(Gpt{options}, c10::ValueError, message);
}

TEST_F(GptTest, OptionsOutOfRangeAreNamed) {
  using O = GptOptions;
  expect_refused([](O& o) { o.vocabulary = 0; }, "Gpt: vocabulary must be >=");
  expect_refused([](O& o) { o.width = -8; }, "Gpt: width must be >= 1, got -8");
  expect_refused([](O& o) { o.layers = 0; }, "Gpt: layers must be >= 1, got 0");
  expect_refused([](O& o) { o.heads = 0; }, "Gpt: heads must be >= 1, got 0");
  expect_refused([](O& o) { o.length = 0; }, "Gpt: length must be >= 1, got 0");
  expect_refused(
      [](O& o) { o.heads = 3; },
      "Gpt: width must be a multiple of heads, got 8 and 3");
  expect_refused(
      [](O& o) { o.loss_chunks = 0; }, "Gpt: loss_chunks must be >= 1, got 0");
  expect_refused(
      [](O& o) { o.dropout = 1; }, "Gpt: dropout must be in [0, 1), got 1");
  expect_refused(
      [](O& o) { o.dropout = std::numeric_limits<double>::quiet_NaN(); },
      "Gpt: dropout must be in [0, 1), got nan");
}

} // namespace
} // namespace ampkit::zoo
