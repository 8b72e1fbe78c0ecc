// Batch norms over several ranks, which are threads here, against the same
// module in one process on the whole batch.

#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>
#include <ampkit/dist/sync_batch_norm.h>

#include "dist/ddp_support.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl() {
    using namespace torch::nn;
    conv = register_module("conv", Conv2d(2, 4, 3));
    norm = register_module("norm", BatchNorm2d(4));
    head = register_module("head", Linear(4, 3));
    const at::NoGradGuard no_grad;
    double step = 0.31;
    for (auto& p : parameters()) {
      p.copy_((at::sin(at::arange(p.numel()) * step) * 0.5).view(p.sizes()));
      step += 0.17;
    }
  }
  at::Tensor forward(const at::Tensor& input) {
    return head(at::relu(norm(conv(input))).mean({2, 3}));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ConvNet);

at::Tensor images(int64_t count, c10::ScalarType dtype = at::kFloat) {
  const auto values = at::sin(at::arange(count * 50, at::kDouble) * 0.7);
  return (values.view({count, 2, 5, 5}) + 1).to(dtype);
}

/// Parameters and running statistics after some steps.
std::vector<at::Tensor> state_of(const torch::nn::Module& module) {
  auto all = copies(module.parameters());
  for (const auto& buffer : module.buffers()) {
    all.push_back(buffer.to(at::kDouble));
  }
  return all;
}

constexpr int kSteps = 5;

std::vector<at::Tensor> alone(int64_t rows, c10::ScalarType dtype) {
  ConvNet net;
  net->to(dtype);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    net(images(rows, dtype)).square().mean().backward();
    optimizer.step();
  }
  return state_of(*net);
}

void expect_as_one_process(int ranks, c10::ScalarType dtype, double limit) {
  const auto expected = alone(4 * ranks, dtype);
  std::vector<std::vector<at::Tensor>> found(static_cast<size_t>(ranks));
  spawn_threads(ranks, [&](const Context& context) {
    ConvNet net;
    net->to(dtype);
    TORCH_CHECK(convert_sync_batchnorm(*net, context) == 1);
    DistributedDataParallel ddp(*net, context);
    torch::optim::SGD optimizer(
        net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    const auto part = images(4 * ranks, dtype).narrow(0, context.rank() * 4, 4);
    for (int step = 0; step < kSteps; ++step) {
      ddp.forward([&] { return net(part); }).square().mean().backward();
      optimizer.step();
      ddp.zero_grad();
    }
    found[static_cast<size_t>(context.rank())] = state_of(*net);
  });
  for (const auto& rank : found) {
    EXPECT_LE(difference(rank, expected), limit);
    EXPECT_EQ(difference(rank, found[0]), 0);
  }
}

TEST(SyncBatchNormTest, TrainsAsOneProcessOnTheWholeBatch) {
  for (const int ranks : {2, 3}) {
    expect_as_one_process(ranks, at::kDouble, 1e-12);
    expect_as_one_process(ranks, at::kFloat, 5e-6); // 5 steps of 2^-24 x 10
  }
}

// Float64: gradients of input, weight and bias are those of the whole batch.
TEST(SyncBatchNormTest, GradientsOfUnequalPartsAreThoseOfTheWholeBatch) {
  const auto whole =
      at::sin(at::arange(7 * 3 * 4, at::kDouble)).view({7, 3, 4});
  const auto slope =
      at::cos(at::arange(7 * 3 * 4, at::kDouble)).view({7, 3, 4});
  const auto affine = at::tensor({0.5, -1.0, 2.0}, at::kDouble);
  auto input = whole.clone().requires_grad_();
  auto weight = affine.clone().requires_grad_();
  auto bias = affine.clone().requires_grad_();
  auto mean = at::zeros({3}, at::kDouble);
  auto var = at::ones({3}, at::kDouble);
  (at::batch_norm(input, weight, bias, mean, var, true, 0.3, 1e-5, false) *
   slope)
      .sum()
      .backward();
  std::vector<std::vector<at::Tensor>> found(3);
  // 5, 2 and 0 rows.
  const std::vector<std::pair<int64_t, int64_t>> rows{{0, 5}, {5, 2}, {7, 0}};
  spawn_threads(3, [&](const Context& context) {
    const auto me = static_cast<size_t>(context.rank());
    const auto [begin, count] = rows[me];
    auto x = whole.narrow(0, begin, count).clone().requires_grad_();
    auto w = affine.clone().requires_grad_();
    auto b = affine.clone().requires_grad_();
    auto m = at::zeros({3}, at::kDouble);
    auto v = at::ones({3}, at::kDouble);
    (sync_batch_norm(x, w, b, m, v, 0.3, 1e-5, context) *
     slope.narrow(0, begin, count))
        .sum()
        .backward();
    found[me] = {x.grad(), w.grad(), b.grad(), m, v};
  });
  const auto gradient = at::cat({found[0][0], found[1][0], found[2][0]});
  EXPECT_TRUE(gradient.allclose(input.grad(), 1e-10, 1e-10));
  EXPECT_TRUE((found[0][1] + found[1][1] + found[2][1])
                  .allclose(weight.grad(), 1e-10, 1e-10));
  EXPECT_TRUE((found[0][2] + found[1][2] + found[2][2])
                  .allclose(bias.grad(), 1e-10, 1e-10));
  for (const auto& rank : found) {
    EXPECT_TRUE(rank[3].allclose(mean, 1e-12, 1e-12));
    EXPECT_TRUE(rank[4].allclose(var, 1e-12, 1e-12));
  }
}

TEST(SyncBatchNormTest, OtherNormsEvaluationAndOneRankAreLeftAlone) {
  ConvNet untouched;
  const auto before = untouched(images(4)).detach();
  spawn_threads(2, [&](const Context& context) {
    ConvNet net;
    convert_sync_batchnorm(*net, context);
    net->eval();
    if (context.rank() == 0) { // no other rank is needed
      net(images(4));
    }
  });
  spawn_threads(1, [&](const Context& context) {
    ConvNet net;
    TORCH_CHECK(convert_sync_batchnorm(*net, context) == 1);
    TORCH_CHECK(net(images(4)).equal(before));
  });
  ConvNet later;
  EXPECT_TRUE(later(images(4)).equal(before));
}

TEST(SyncBatchNormTest, SixteenBitInputsKeepTheirDtype) {
  spawn_threads(2, [](const Context& context) {
    ConvNet net;
    convert_sync_batchnorm(*net, context);
    auto x = images(2).narrow(1, 0, 1).expand({2, 4, 5, 5}).to(at::kBFloat16);
    x = x.clone().requires_grad_();
    const auto y = net->norm(x);
    y.square().mean().backward();
    TORCH_CHECK(y.scalar_type() == at::kBFloat16);
    TORCH_CHECK(x.grad().scalar_type() == at::kBFloat16);
    TORCH_CHECK(net->norm->weight.grad().scalar_type() == at::kFloat);
  });
}

TEST(SyncBatchNormTest, NormThatNothingIdentifiesIsNamed) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(
      torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(
          false)));
  EXPECT_ERROR(
      spawn_threads(
          2,
          [&](const Context& context) {
            convert_sync_batchnorm(*net, context);
          }),
      c10::Error,
      "'0' has neither running statistics nor weights");
}

TEST(SyncBatchNormTest, ContextThatIsGoneIsSaid) {
  ConvNet net;
  spawn_threads(2, [&](const Context& context) {
    if (context.rank() == 0) {
      convert_sync_batchnorm(*net, context);
    }
  });
  EXPECT_ERROR(net(images(4)), c10::Error, "the context", "is gone");
}

TEST(SyncBatchNormTest, OneValueAChannelOnAllRanksIsAnError) {
  EXPECT_ERROR(
      spawn_threads(
          2,
          [](const Context& context) {
            sync_batch_norm(
                at::ones({context.rank(), 3}),
                {},
                {},
                {},
                {},
                0.1,
                1e-5,
                context);
          }),
      c10::Error,
      "more than 1 value a channel");
}

} // namespace
} // namespace ampkit::dist
