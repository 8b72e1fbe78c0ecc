#include <ampkit/amp/autocast.h>
#include <ampkit/amp/recompute.h>
#include <gtest/gtest.h>

#include "recompute_support.h"

namespace ampkit {
namespace {

/// An input [2, 3] with gradients, and how often the test's fn was called.
class RecomputeErrorTest : public testing::Test {
 protected:
  // What backward() of checkpoint(options, fn, input) says; empty: nothing.
  template <class F>
  std::string error(F fn, const RecomputeOptions& options = {}) {
    auto loss = checkpoint(options, fn, input_).sum();
    try {
      loss.backward();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }

  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  bool first_call() { return calls_++ == 0; }

  at::Tensor input_ = torch::ones({2, 3}).requires_grad_();
  int calls_ = 0;
};

TEST_F(RecomputeErrorTest, FewerSavedTensorsAreRefusedWithBothCounts) {
  const auto text = error([this](const at::Tensor& x) {
    return first_call() ? x.exp().sin() : x.exp();
  });
  EXPECT_TRUE(has(
      text,
      "checkpoint: the recomputation saved 1 tensors for backward, the call "
      "of fn 2; fn must do the same each time"))
      << text;
}

TEST_F(RecomputeErrorTest, MoreSavedTensorsAreRefusedIfItRunsToTheEnd) {
  const auto f = [this](const at::Tensor& x) {
    return first_call() ? x.exp() : x.exp().sin();
  };
  const auto text = error(f, {.early_stop = false});
  EXPECT_TRUE(has(text, "saved 2 tensors for backward, the call of fn 1"))
      << text;
}

TEST_F(RecomputeErrorTest, AnotherShapeIsRefusedUnlessTheCheckIsOff) {
  const auto f = [this](const at::Tensor& x) {
    const auto y = first_call() ? x : x.reshape({6});
    return y.exp();
  };
  const auto text = error(f);
  EXPECT_TRUE(has(
      text,
      "differs from the call of fn: saved tensor 0 is Float [6] on cpu, not "
      "Float [2, 3] on cpu"))
      << text;
  EXPECT_FALSE(input_.grad().defined());
  calls_ = 0;
  const auto unchecked = error(f, {.determinism_check = false});
  EXPECT_FALSE(has(unchecked, "checkpoint")) << unchecked;
}

TEST_F(RecomputeErrorTest, AnotherDtypeIsRefused) {
  const auto text = error([this](const at::Tensor& x) {
    return x.to(first_call() ? torch::kFloat : torch::kDouble).exp();
  });
  EXPECT_TRUE(has(text, "is Double [2, 3] on cpu, not Float [2, 3]")) << text;
}

TEST_F(RecomputeErrorTest, ParameterSteppedBeforeBackwardIsRefused) {
  const auto weight = torch::ones({3}).requires_grad_();
  auto loss =
      checkpoint([weight](const at::Tensor& x) { return x * weight; }, input_)
          .sum();
  {
    const torch::NoGradGuard no_grad;
    weight.add_(1);
  }
  try {
    loss.backward();
    FAIL() << "accepted a changed parameter";
  } catch (const c10::Error& error) {
    EXPECT_TRUE(has(error.what(), "changed 1 times")) << error.what();
  }
}

TEST_F(RecomputeErrorTest, InputChangedInPlaceIsRefused) {
  const auto data = torch::ones({2, 3});
  const auto weight = torch::ones({3}).requires_grad_();
  auto loss =
      checkpoint([weight](const at::Tensor& x) { return x * weight; }, data)
          .sum();
  data.add_(1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST_F(RecomputeErrorTest, SavedTensorChangedInPlaceByTheFunctionIsRefused) {
  const auto text = error([](const at::Tensor& x) {
    auto y = x.exp();
    const auto z = y * 2;
    y.add_(1);
    return z + x.sin();
  });
  EXPECT_TRUE(has(text, "Float [2, 3] on cpu, was changed in place by fn"))
      << text;
}

TEST_F(RecomputeErrorTest, ExceptionOfTheCallLeavesLaterCallsAlone) {
  EXPECT_THROW(
      checkpoint(
          [](const at::Tensor& x) -> at::Tensor {
            const auto y = x.exp();
            throw std::runtime_error("of fn");
          },
          input_),
      std::runtime_error);
  input_.exp().sum().backward(); // saved by nobody's hooks
  EXPECT_TRUE(input_.grad().equal(input_.detach().exp()));
}

TEST_F(RecomputeErrorTest, ExceptionOfTheRecomputationReachesTheCaller) {
  const auto state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  auto loss = checkpoint(
                  [this](const at::Tensor& x) {
                    torch::rand({3});
                    TORCH_CHECK(first_call(), "out of something");
                    return x.exp();
                  },
                  input_)
                  .sum();
  const auto after = at::globalContext().defaultGenerator(at::kCPU).get_state();
  EXPECT_FALSE(after.equal(state));
  EXPECT_THROW(loss.backward(), c10::Error);
  EXPECT_TRUE(
      at::globalContext().defaultGenerator(at::kCPU).get_state().equal(after));
  EXPECT_EQ(Autocast::cached_casts(), 0);
  calls_ = 0;
  loss.backward(); // the graph is still whole
  EXPECT_TRUE(input_.grad().equal(input_.detach().exp()));
}

TEST_F(RecomputeErrorTest, CatchingStdExceptionsDoesNotCatchTheEarlyStop) {
  const auto text = error([](const at::Tensor& x) {
    try {
      return x.exp();
    } catch (const std::exception&) {
      ADD_FAILURE() << "caught";
      return x;
    }
  });
  EXPECT_EQ(text, "");
}

TEST(CheckpointSequentialTest, EqualsThePlainSequenceAndKeepsTheLastSegment) {
  auto blocks = make_blocks(5);
  torch::nn::Sequential sequence;
  for (const Block& block : blocks) {
    sequence->push_back(block);
  }
  sequence->eval();
  const auto input = torch::randn({4, 32}).requires_grad_();
  sequence->forward(input).sum().backward();
  const auto expected = input.grad().clone();
  for (const int64_t segments : {1, 2, 5}) {
    input.mutable_grad() = at::Tensor();
    checkpoint_sequential(*sequence, segments, input).sum().backward();
    EXPECT_TRUE(input.grad().equal(expected)) << segments;
  }
  // Plain, and with 1, 2 and 5 segments.
  EXPECT_EQ(blocks[0]->calls, 1 + 1 + 2 + 2);
  EXPECT_EQ(blocks[2]->calls, 1 + 1 + 1 + 2);
  EXPECT_EQ(blocks[4]->calls, 1 + 1 + 1 + 1);
}

TEST(CheckpointSequentialTest, SegmentsOutOfRangeAreRefused) {
  const std::vector<std::function<at::Tensor(at::Tensor)>> functions(
      2, [](const at::Tensor& x) { return x.exp(); });
  for (const int64_t segments : {0, 3}) {
    try {
      checkpoint_sequential(functions, segments, torch::ones({2}));
      FAIL() << "accepted " << segments;
    } catch (const c10::ValueError& error) {
      EXPECT_NE(
          error.msg().find("segments must be in [1, 2], the number of"),
          std::string::npos)
          << error.msg();
    }
  }
}

} // namespace
} // namespace ampkit
