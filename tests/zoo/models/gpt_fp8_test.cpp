#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/fp8.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/zoo/models/gpt.h>

namespace ampkit::zoo {
namespace {

constexpr int64_t kVocabulary = 32;
constexpr int64_t kLength = 32;
constexpr int kSteps = 120;
constexpr int kLast = 20; // steps whose loss counts

/// Text by a chain in which each token has four possible successors.
class Text {
 public:
  Text() {
    torch::manual_seed(5);
    successors_ = torch::randint(kVocabulary, {kVocabulary, 4}, torch::kLong);
  }

  /// [batch, length + 1]
  torch::Tensor next_batch(int64_t batch) {
    auto tokens = torch::empty({batch, kLength + 1}, torch::kLong);
    tokens.select(1, 0).random_(kVocabulary);
    const auto weights = torch::tensor({0.6, 0.2, 0.1, 0.1});
    for (int64_t i = 1; i <= kLength; ++i) {
      const auto choice = torch::multinomial(weights, batch, true);
      tokens.select(1, i).copy_(
          successors_.index_select(0, tokens.select(1, i - 1))
              .gather(1, choice.unsqueeze(1))
              .squeeze(1));
    }
    return tokens;
  }

 private:
  torch::Tensor successors_;
};

struct Trained {
  double loss = 0; // mean over the last steps
  std::vector<Fp8Layer> layers;
};

/// The same model, text and loop in FP32 and, with `fp8`, in fp8-mixed.
Trained train(const std::optional<Fp8Options>& fp8) {
  Text text;
  Gpt gpt(GptOptions{.vocabulary = kVocabulary, .length = kLength});
  const auto precision = fp8 ? Precision::fp8_mixed() : Precision::fp32();
  AutocastOptions options;
  if (fp8) {
    options.fp8 = std::make_shared<Fp8Linears>(*gpt, *fp8);
  }
  optim::AdamW optimizer(gpt->parameters(), {.lr = 3e-3});
  GradScaler scaler(precision);
  Trained result;
  for (int step = 0; step < kSteps; ++step) {
    const auto tokens = text.next_batch(8);
    torch::Tensor loss;
    {
      const Autocast autocast(torch::kCPU, precision, options);
      loss = gpt->loss(
          tokens.slice(1, 0, kLength), tokens.slice(1, 1, kLength + 1));
    }
    optimizer.zero_grad();
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    if (fp8) {
      options.fp8->update();
    }
    result.loss += step < kSteps - kLast ? 0.0 : loss.item<double>() / kLast;
  }
  if (fp8) {
    result.layers = options.fp8->layers();
  }
  return result;
}

TEST(GptFp8Test, Fp8MixedEndsWithinOnePercentOfTheFp32Loss) {
  const double fp32 = train(std::nullopt).loss;
  EXPECT_LT(fp32, 1.6); // it learnt: guessing costs log(32) = 3.47
  for (const auto recipe :
       {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row_wise}) {
    const Trained result =
        train(Fp8Options{.recipe = recipe, .filter_fqns = {"wte"}});
    EXPECT_NEAR(result.loss, fp32, 0.01 * fp32) << static_cast<int>(recipe);
    for (const Fp8Layer& layer : result.layers) {
      const bool is_linear = layer.name.starts_with("h.");
      EXPECT_EQ(layer.products, is_linear ? kSteps : 0) << layer.name;
    }
  }
}

} // namespace
} // namespace ampkit::zoo
