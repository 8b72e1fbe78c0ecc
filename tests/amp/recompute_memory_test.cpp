#include <ampkit/amp/autocast.h>
#include <ampkit/amp/recompute.h>
#include <gtest/gtest.h>

#include "amp/allocated_bytes.h"
#include "recompute_support.h"

namespace ampkit {
namespace {

/// Eight blocks on a batch of 64, one float32 activation 8 KiB.
class RecomputeMemoryTest : public testing::Test {
 protected:
  at::Tensor loss(bool recomputed) {
    at::Tensor y = input_;
    for (Block& block : blocks_) {
      y = recomputed ? checkpoint(block, y) : block(y);
    }
    return y.sum();
  }

  // What a whole step needs at most beyond its gradients, and what forward
  // leaves held.
  std::pair<int64_t, int64_t> step(bool recomputed) {
    loss(false).backward(); // the gradients are there from now on
    const auto memory = std::make_shared<AllocatedBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
    auto result = loss(recomputed);
    const int64_t held = memory->held();
    result.backward();
    result = at::Tensor();
    EXPECT_EQ(memory->held(), 0);
    return {held, memory->peak()};
  }

  std::vector<Block> blocks_ = make_blocks(8);
  at::Tensor input_ = torch::randn({64, 32}).requires_grad_();
};

TEST_F(RecomputeMemoryTest, ForwardKeepsLittleMoreThanTheInputsOfTheBlocks) {
  const auto [plain, plain_peak] = step(false);
  const auto [held, peak] = step(true);
  constexpr int64_t kInputs = 8 * 64 * 32 * 4;
  constexpr int64_t kGenerators = 8 * 8192; // a bit over 5000 bytes each
  EXPECT_LT(held, kInputs + kGenerators);
  EXPECT_LT(held, plain / 4) << plain;
  EXPECT_LT(peak, plain_peak / 2) << plain_peak;
}

TEST_F(RecomputeMemoryTest, ValuesThatAPassDidNotAskForAreFreedAtItsEnd) {
  const auto weight = torch::randn({32}).requires_grad_();
  const auto memory = std::make_shared<AllocatedBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  const auto y =
      checkpoint(
          [weight](const at::Tensor& x) { return x.exp() + weight.exp(); },
          input_)
          .sum();
  const int64_t before = memory->held();
  // Nothing of x.exp() is asked for.
  torch::autograd::grad({y}, {weight}, {}, /*retain_graph=*/true);
  EXPECT_EQ(memory->held(), before);
}

/// x squared, from its result.
struct SquareThatSavesItsResult
    : torch::autograd::Function<SquareThatSavesItsResult> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const auto y = x.square();
    context->save_for_backward({y});
    return y;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0].sqrt()};
  }
};

TEST_F(RecomputeMemoryTest, CustomFunctionThatSavesItsResultIsFreed) {
  const auto step = [this] {
    checkpoint(
        [](const at::Tensor& x) {
          return SquareThatSavesItsResult::apply(x.abs()) + 1;
        },
        input_)
        .sum()
        .backward();
  };
  step(); // the gradient is there from now on
  const auto memory = std::make_shared<AllocatedBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  step();
  step();
  EXPECT_EQ(memory->held(), 0);
  EXPECT_TRUE(input_.grad().allclose(6 * input_));
}

TEST_F(RecomputeMemoryTest, InnerCheckpointGivesUpItsInputToTheOuterOne) {
  const auto held = [this](bool nested) {
    const auto memory = std::make_shared<AllocatedBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
    const auto y = checkpoint(
        {.preserve_rng_state = false},
        [this, nested](at::Tensor x) {
          for (Block& block : blocks_) {
            x = nested ? checkpoint({.preserve_rng_state = false}, block, x)
                       : block(x);
          }
          return x;
        },
        input_);
    return memory->held();
  };
  EXPECT_EQ(held(true), held(false));
}

} // namespace
} // namespace ampkit
