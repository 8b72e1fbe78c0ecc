// The classic flow of mixed precision (Micikevicius et al., 2018): 16-bit
// weights, loss in fp32 times a scale, gradients unscaled and clipped in fp32,
// fp32 masters updated and cast back; against a loop written with plain ops.

#include <cmath>
#include <limits>

#include <ATen/ops/_fused_adamw.h>
#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cast_parameters.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

constexpr int kSteps = 30;
constexpr int kBadStep = 11;
constexpr int64_t kGrowthInterval = 8;
constexpr double kLr = 2e-3;
constexpr double kDecay = 0.1;

/// What differs between the references.
struct Arithmetic {
  /// Divide the gradients once, by scale / clip, as the fused step does; else
  /// divide by the scale, then multiply by the clip, as PyTorch does.
  bool one_division = false;
  /// Clip by the norm that the fused step measured, which is summed in fp32
  /// within blocks; else by one summed in fp64.
  bool takes_measured_norm = false;
  /// LibTorch's fused op; else torch::optim::AdamW, which rounds differently.
  bool fused_adamw = true;
};

/// Masters, moments and loss scale in plain sight.
class Reference {
 public:
  Reference(
      std::vector<torch::Tensor> params, double scale, Arithmetic arithmetic)
      : params_(std::move(params)), scale_(scale), arithmetic_(arithmetic) {
    for (const auto& param : params_) {
      masters_.push_back(param.detach().to(torch::kFloat, false, true));
      first_.push_back(torch::zeros_like(masters_.back()));
      second_.push_back(torch::zeros_like(masters_.back()));
      steps_.push_back(torch::zeros({}));
    }
    adamw_ = std::make_unique<torch::optim::AdamW>(
        masters_, torch::optim::AdamWOptions(kLr).weight_decay(kDecay));
  }

  /// Whether it stepped. `measured_norm`: what the fused step says.
  bool step(double max_norm, bool dynamic_scale, double measured_norm) {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> grads;
    auto sum = torch::zeros({}, torch::kDouble);
    for (const auto& param : params_) {
      grads.push_back(param.grad().to(torch::kFloat) / scale_);
      sum += grads.back().to(torch::kDouble).square().sum();
    }
    auto norm = sum.sqrt().to(torch::kFloat);
    const bool good = norm.isfinite().item<bool>();
    if (good) {
      if (arithmetic_.takes_measured_norm) {
        EXPECT_NEAR(measured_norm / norm.item<double>(), 1, 1e-6);
        norm.fill_(measured_norm);
      }
      clip(grads, (max_norm / (norm + 1e-6)).clamp_max(1.0));
      update(grads);
    }
    if (dynamic_scale) {
      clean_ = good ? clean_ + 1 : 0;
      scale_ *= !good ? 0.5 : clean_ == kGrowthInterval ? 2.0 : 1.0;
      clean_ = clean_ == kGrowthInterval ? 0 : clean_;
    }
    return good;
  }

  /// Takes over masters and weights.
  void follow(const std::vector<torch::Tensor>& masters) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < masters.size(); ++i) {
      masters_[i].copy_(masters[i]);
      params_[i].copy_(masters[i]);
    }
  }

  double scale() const { return scale_; }
  int clipped() const { return clipped_; }
  const std::vector<torch::Tensor>& masters() const { return masters_; }

 private:
  void clip(std::vector<torch::Tensor>& grads, const torch::Tensor& factor) {
    clipped_ += factor.item<float>() < 1 ? 1 : 0;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (arithmetic_.one_division) {
        grads[i] = params_[i].grad().to(torch::kFloat) /
                   (torch::full({}, scale_) / factor);
      } else {
        grads[i] = grads[i] * factor;
      }
    }
  }

  void update(const std::vector<torch::Tensor>& grads) {
    if (arithmetic_.fused_adamw) {
      for (auto& step : steps_) {
        step += 1;
      }
      at::_fused_adamw_(
          masters_,
          grads,
          first_,
          second_,
          {},
          steps_,
          kLr,
          0.9,
          0.999,
          kDecay,
          1e-8,
          /*amsgrad=*/false,
          /*maximize=*/false);
    } else {
      for (size_t i = 0; i < grads.size(); ++i) {
        masters_[i].mutable_grad() = grads[i];
      }
      adamw_->step();
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      params_[i].copy_(masters_[i]);
    }
  }

  std::vector<torch::Tensor> params_;
  std::vector<torch::Tensor> masters_;
  std::vector<torch::Tensor> first_;
  std::vector<torch::Tensor> second_;
  std::vector<torch::Tensor> steps_; // fp32 [] each, as the op wants them
  std::unique_ptr<torch::optim::AdamW> adamw_;
  double scale_;
  Arithmetic arithmetic_;
  int64_t clean_ = 0;
  int clipped_ = 0;
};

nn::Sequential make_network(const Precision& precision) {
  torch::manual_seed(11);
  nn::Sequential network(
      nn::Linear(8, 32),
      nn::LayerNorm(nn::LayerNormOptions({32})),
      nn::GELU(),
      nn::Linear(32, 4));
  cast_parameters(*network, precision);
  return network;
}

torch::Tensor fp32_loss(nn::Sequential& network, const Precision& precision) {
  torch::manual_seed(13);
  const auto x = torch::randn({64, 8});
  const auto target = torch::sin(3 * x.slice(1, 0, 4));
  Autocast autocast(torch::kCPU, precision);
  return torch::mse_loss(network->forward(x).to(torch::kFloat), target);
}

void plant_inf(nn::Sequential& network) {
  network->parameters()[0].mutable_grad().view(-1)[3] =
      std::numeric_limits<float>::infinity();
}

/// Two equal networks, one trained by ampkit, one by the reference.
class ClassicFlow {
 public:
  ClassicFlow(
      const Precision& precision, optim::Kernel kernel, Arithmetic arithmetic)
      : precision_(precision),
        adamw_(
            ours_->parameters(),
            {.lr = kLr, .weight_decay = kDecay, .kernel = kernel}),
        reference_(
            theirs_->parameters(),
            precision.scales_loss ? 65536.0 : 1.0,
            arithmetic) {}

  bool step_ours(double max_norm, bool bad) {
    const auto loss = fp32_loss(ours_, precision_);
    our_loss = loss.item<float>();
    scaler_.scale(loss).backward();
    if (bad) {
      plant_inf(ours_);
    }
    const auto result = scaler_.step(adamw_, {.max_norm = max_norm});
    our_norm_ = result.grad_norm();
    scaler_.update();
    adamw_.zero_grad();
    return result.stepped();
  }

  bool step_theirs(double max_norm, bool bad) {
    const auto loss = fp32_loss(theirs_, precision_);
    their_loss = loss.item<float>();
    (loss * reference_.scale()).backward();
    if (bad) {
      plant_inf(theirs_);
    }
    const bool stepped =
        reference_.step(max_norm, precision_.scales_loss, our_norm_);
    theirs_->zero_grad();
    return stepped;
  }

  /// Their weights become ours: a weight that was rounded to the other side
  /// does not lead the two apart.
  void bring_together() {
    std::vector<torch::Tensor> masters;
    for (const auto& parameter : ours_->parameters()) {
      masters.push_back(adamw_.master(parameter));
    }
    reference_.follow(masters);
  }

  /// Largest difference between the masters, and between the weights.
  std::pair<double, double> differences() const {
    double masters = 0;
    double weights = 0;
    const auto ours = ours_->parameters();
    const auto theirs = theirs_->parameters();
    const auto largest = [](const torch::Tensor& a, const torch::Tensor& b) {
      return (a - b).abs().max().item<double>();
    };
    for (size_t i = 0; i < ours.size(); ++i) {
      const auto& master = reference_.masters()[i];
      masters = std::max(masters, largest(adamw_.master(ours[i]), master));
      weights = std::max(weights, largest(ours[i], theirs[i]));
    }
    return {masters, weights};
  }

  /// What the weights do not hold of their masters.
  double below_the_weights() const {
    const auto weight = ours_->parameters()[0];
    return (adamw_.master(weight) - weight).abs().max().item<double>();
  }

  const GradScaler& scaler() const { return scaler_; }
  const Reference& reference() const { return reference_; }

  float our_loss = 0;
  float their_loss = 0;

 private:
  Precision precision_;
  nn::Sequential ours_ = make_network(precision_);
  nn::Sequential theirs_ = make_network(precision_);
  optim::AdamW adamw_;
  GradScaler scaler_{precision_, {.growth_interval = kGrowthInterval}};
  Reference reference_;
  double our_norm_ = 0;
};

/// Trains both, an infinite gradient in step kBadStep; `compare` after each.
template <class Compare>
void train_both(ClassicFlow& flow, double max_norm, const Compare& compare) {
  float first_loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool bad = step == kBadStep;
    EXPECT_EQ(flow.step_ours(max_norm, bad), !bad) << "step " << step;
    EXPECT_EQ(flow.step_theirs(max_norm, bad), !bad) << "step " << step;
    SCOPED_TRACE(step);
    compare();
    first_loss = step == 0 ? flow.our_loss : first_loss;
  }
  EXPECT_LT(flow.our_loss, 0.9 * first_loss); // it does learn
  EXPECT_GT(flow.below_the_weights(), 0);
  EXPECT_EQ(flow.scaler().steps_skipped(), 1);
}

class ClassicFlowTest : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_equal_bits(double max_norm, Arithmetic arithmetic) {
    ClassicFlow flow(precision_, optim::Kernel::stock, arithmetic);
    train_both(flow, max_norm, [&] {
      EXPECT_EQ(flow.our_loss, flow.their_loss);
      EXPECT_EQ(flow.differences(), (std::pair{0.0, 0.0}));
      if (precision_.scales_loss) {
        EXPECT_EQ(flow.scaler().get_scale(), flow.reference().scale());
      }
    });
    // 29 clean steps around a bad one: 8 + 3 and 2 * 8 + 2.
    EXPECT_EQ(
        flow.reference().scale(), precision_.scales_loss ? 65536.0 * 4 : 1.0);
    EXPECT_EQ(flow.reference().clipped() > 0, std::isfinite(max_norm));
  }

  Precision precision_ = Precision::parse(GetParam());
};

INSTANTIATE_TEST_SUITE_P(
    Presets,
    ClassicFlowTest,
    ::testing::Values("fp16-master", "bf16-master"),
    [](const auto& preset) { return preset.param.substr(0, 4); });

TEST_P(ClassicFlowTest, EqualsALoopOverMastersToTheLastBit) {
  expect_equal_bits(std::numeric_limits<double>::infinity(), {});
}

// Clipping is part of the one division that unscales, by the measured norm.
TEST_P(ClassicFlowTest, ClippedEqualsALoopWithOneDivisionToTheLastBit) {
  expect_equal_bits(0.25, {.one_division = true, .takes_measured_norm = true});
}

/// PyTorch's order, divided by the scale and then multiplied by the clip, and
/// LibTorch's own AdamW round differently in the last bits of fp32.
class ClassicFlowKernelTest
    : public ::testing::TestWithParam<std::tuple<std::string, optim::Kernel>> {
};

INSTANTIATE_TEST_SUITE_P(
    PresetsAndKernels,
    ClassicFlowKernelTest,
    ::testing::Combine(
        ::testing::Values("fp16-master", "bf16-master"),
        ::testing::Values(optim::Kernel::stock, optim::Kernel::highway)));

TEST_P(ClassicFlowKernelTest, EachStepIsWithin1e6OfTorchOptimAdamWOnMasters) {
  const auto [preset, kernel] = GetParam();
  ClassicFlow flow(Precision::parse(preset), kernel, {.fused_adamw = false});
  train_both(flow, 0.25, [&] {
    EXPECT_LT(flow.differences().first, 1e-6);
    EXPECT_EQ(flow.our_loss, flow.their_loss);
    flow.bring_together();
  });
}

} // namespace
} // namespace ampkit
