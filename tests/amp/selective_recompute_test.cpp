#include <atomic>

#include <ampkit/amp/recompute.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "recompute_support.h"
#include "support/errors.h"

namespace ampkit {
namespace {

std::atomic<int> kernel_runs = 0;

at::Tensor noisy_kernel(const at::Tensor& x) {
  ++kernel_runs;
  return x * at::rand_like(x);
}

at::Tensor noisy(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ampkit_selective::noisy", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

class NoisyFunction : public torch::autograd::Function<NoisyFunction> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::AutoDispatchBelowAutograd guard;
    auto y = noisy(x);
    context->save_for_backward({x, y});
    return y;
  }
  // y = x * noise
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::tensor_list& grads) {
    const auto saved = context->get_saved_variables();
    return {grads[0] * saved[1] / saved[0]};
  }
};

TORCH_LIBRARY(ampkit_selective, m) {
  m.def(
      "noisy(Tensor x) -> Tensor",
      {at::Tag::nondeterministic_seeded, at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(ampkit_selective, CPU, m) {
  m.impl("noisy", noisy_kernel);
}
TORCH_LIBRARY_IMPL(ampkit_selective, Autograd, m) {
  m.impl("noisy", [](const at::Tensor& x) { return NoisyFunction::apply(x); });
}

struct Outcome {
  std::vector<at::Tensor> gradients;
  at::Tensor random; // drawn after backward
  int kernel_runs = 0;
};

// Two blocks around a random op and a dropout.
Outcome train(const std::optional<RecomputeOptions>& options) {
  auto blocks = make_blocks(2);
  const auto x = torch::randn({8, 32}).requires_grad_();
  const auto body = [&](const at::Tensor& input) {
    auto y = noisy(blocks[0]->forward(input));
    return blocks[1]->forward(torch::dropout(y, 0.2, /*train=*/true));
  };
  kernel_runs = 0;
  torch::manual_seed(11);
  const auto y = options.has_value() ? checkpoint(*options, body, x) : body(x);
  y.square().sum().backward();
  Outcome outcome{.gradients = {x.grad()}, .random = torch::rand({3})};
  for (const Block& block : blocks) {
    for (const auto& parameter : block->parameters()) {
      outcome.gradients.push_back(parameter.grad());
    }
  }
  outcome.kernel_runs = kernel_runs;
  return outcome;
}

void expect_same(const Outcome& found, const Outcome& expected) {
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    EXPECT_TRUE(found.gradients[i].equal(expected.gradients[i])) << i;
  }
  EXPECT_TRUE(found.random.equal(expected.random));
}

TEST(SelectiveRecompute, KeptOpRunsOnceAndGradientsAreThoseOfThePlainRun) {
  const auto plain = train(std::nullopt);
  EXPECT_EQ(plain.kernel_runs, 1);
  const auto recomputed = train(RecomputeOptions());
  EXPECT_EQ(recomputed.kernel_runs, 2);
  expect_same(recomputed, plain);
  // The dropout after it draws the same numbers, though noisy draws none.
  RecomputeOptions options;
  options.save_results_of = {"ampkit_selective::noisy", "addmm", "gelu"};
  const auto selective = train(options);
  EXPECT_EQ(selective.kernel_runs, 1);
  expect_same(selective, plain);
}

TEST(SelectiveRecompute, KeptResultsServeASecondBackwardPass) {
  auto block = make_blocks(1).front();
  RecomputeOptions options;
  options.save_results_of = {"addmm"};
  const auto x = torch::randn({4, 32}).requires_grad_();
  const auto y = checkpoint(options, block, x).sum();
  y.backward({}, /*retain_graph=*/true);
  const auto first = x.grad().clone();
  x.mutable_grad().reset();
  y.backward();
  EXPECT_TRUE(x.grad().equal(first));
}

TEST(SelectiveRecompute, InnerCheckpointSaysWhatItKeeps) {
  RecomputeOptions outer;
  outer.save_results_of = {"ampkit_selective::noisy"};
  const auto run = [&](const RecomputeOptions& inner) {
    kernel_runs = 0;
    const auto x = torch::ones({4}).requires_grad_();
    checkpoint(
        outer,
        [&](const at::Tensor& input) {
          return checkpoint(inner, noisy, input.exp()).exp();
        },
        x)
        .sum()
        .backward();
    return kernel_runs.load();
  };
  const int not_kept = run({});
  const int kept = run(outer);
  EXPECT_EQ(not_kept, 3); // forward, outer's and inner's recomputation
  EXPECT_EQ(kept, 2); // the outer one begins the inner call anew
}

TEST(SelectiveRecompute, ChangingAKeptResultInPlaceIsAnError) {
  RecomputeOptions options;
  options.save_results_of = {"mm"};
  const auto x = torch::randn({4, 4}).requires_grad_();
  const auto y = checkpoint(
      options,
      [](const at::Tensor& input) { return input.mm(input).add_(1).exp(); },
      x);
  EXPECT_ERROR(
      y.sum().backward(),
      c10::Error,
      "result 0 of aten::mm, kept by save_results_of, was changed in place");
}

TEST(SelectiveRecompute, RecomputationThatCallsOtherOpsIsAnError) {
  RecomputeOptions options;
  options.save_results_of = {"mm", "bmm"};
  options.determinism_check = false; // which would see other shapes before
  options.early_stop = false;
  bool second = false;
  const auto x = torch::randn({4, 4}).requires_grad_();
  const auto y = checkpoint(
      options,
      [&](const at::Tensor& input) {
        return std::exchange(second, true)
                   ? input.unsqueeze(0).bmm(input.unsqueeze(0))
                   : input.mm(input);
      },
      x);
  EXPECT_ERROR(
      y.sum().backward(), c10::Error, "call 0", "aten::bmm, not aten::mm");
}

TEST(SelectiveRecompute, OpThatCannotBeKeptIsNamed) {
  const auto try_to_keep = [](const std::string& op) {
    RecomputeOptions options;
    options.save_results_of = {op};
    const auto x = torch::ones({2}).requires_grad_();
    checkpoint(options, [](const at::Tensor& y) { return y.exp(); }, x);
  };
  EXPECT_ERROR(
      try_to_keep("linear"), c10::ValueError, "'linear' is made of other ops");
  EXPECT_ERROR(try_to_keep("select"), c10::ValueError, "'select' gives a view");
  EXPECT_ERROR(try_to_keep("adddmm"), c10::ValueError, "adddmm", "addmm");
}

} // namespace
} // namespace ampkit
