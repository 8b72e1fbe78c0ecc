// DistributedDataParallelOptions::reduce_dtype: what gradients are summed in.

#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>

#include "dist/reduce_hook.h"
#include "dist/small_models.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

/// The gradient that each of `ranks` has when rank r's own is `own(r)`.
template <class Own>
std::vector<double> reduced(
    int ranks,
    c10::ScalarType parameters,
    std::optional<c10::ScalarType> reduce,
    const Own& own) {
  std::vector<double> result(static_cast<size_t>(ranks));
  spawn_threads(ranks, [&](const Context& context) {
    torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
    net->to(parameters);
    DistributedDataParallel ddp(*net, context, {.reduce_dtype = reduce});
    const auto input = at::full({1, 1}, own(context.rank())).to(parameters);
    ddp.forward([&] { return net(input); }).sum().backward();
    result[static_cast<size_t>(context.rank())] =
        net->weight.grad().to(at::kDouble).item<double>();
  });
  return result;
}

TEST(ReduceDtypeTest, MeanIsExactWhereTheDtypeIs) {
  for (const auto reduce :
       {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const auto found = reduced(
        2, at::kFloat, reduce, [](int rank) { return rank == 0 ? 1.0 : 3.0; });
    EXPECT_EQ(found, (std::vector{2.0, 2.0})) << reduce;
  }
  const auto of_three =
      reduced(3, at::kFloat, at::kHalf, [](int rank) { return 3.0 * rank; });
  EXPECT_EQ(of_three, (std::vector{3.0, 3.0, 3.0}));
}

// The sum itself, 65536, is beyond fp16.
TEST(ReduceDtypeTest, Fp16SumsDoNotOverflow) {
  for (const int ranks : {2, 4}) {
    const auto own = 65536.0 / ranks;
    const auto found =
        reduced(ranks, at::kFloat, at::kHalf, [&](int) { return own; });
    EXPECT_EQ(found.front(), own) << ranks;
  }
}

// The smallest fp16 number, 2^-24, survives where only half of it is summed
// by 4 ranks: divided by 4 before the sum it would be 0.
TEST(ReduceDtypeTest, SmallFp16GradientsAreNotDividedAway) {
  const double small = 0x1p-23;
  const auto found =
      reduced(4, at::kHalf, at::kHalf, [&](int) { return small; });
  EXPECT_EQ(found.front(), small);
  const auto stock =
      reduced(4, at::kHalf, std::nullopt, [&](int) { return small; });
  EXPECT_EQ(stock.front(), 0.0); // PyTorch's way
}

// 256 + 1 is 256 in bf16; in FP32 the mean of 256, 1, 1 and 2 is 65.
TEST(ReduceDtypeTest, Bf16GradientsAreSummedInFp32) {
  const auto own = [](int rank) {
    return rank == 0 ? 256.0 : (rank == 3 ? 2.0 : 1.0);
  };
  EXPECT_EQ(reduced(4, at::kBFloat16, at::kFloat, own).front(), 65.0);
}

TEST(ReduceDtypeTest, ErrorOfTrainingIsThatOfTheDtype) {
  for (const auto& [dtype, limit] :
       {std::pair(at::kHalf, 0x1p-11), std::pair(at::kBFloat16, 0x1p-8)}) {
    spawn_threads(
        2, [&, reduce = dtype, bound = limit](const Context& context) {
          SmallNet ours;
          SmallNet whole;
          DistributedDataParallel ddp(
              *ours,
              context,
              {.bucket_bytes = 400,
               .gradient_as_bucket_view = true,
               .reduce_dtype = reduce});
          const auto input = at::sin(at::arange(96, at::kFloat)).view({12, 8});
          for (int step = 0; step < 3; ++step) {
            const auto mine = input.narrow(0, 6 * context.rank(), 6);
            ddp.forward([&] { return ours(mine); }).square().mean().backward();
            whole(input).square().mean().backward();
            for (size_t i = 0; i < whole->parameters().size(); ++i) {
              const auto expected = whole->parameters()[i].grad();
              const auto found = ours->parameters()[i].grad();
              // Each of two addends is rounded, and their sum.
              const double largest = expected.abs().max().item<double>();
              TORCH_CHECK(
                  (found - expected).abs().max().item<double>() <=
                      4 * bound * std::max(largest, 0.1),
                  found - expected);
            }
            ddp.zero_grad();
            whole->zero_grad();
          }
        });
  }
}

TEST(ReduceDtypeTest, DivisorBeforeTheSumIsAPowerOfTwoNearTheRoot) {
  EXPECT_EQ(divisor_before_sum(1), 1);
  EXPECT_EQ(divisor_before_sum(2), 2);
  EXPECT_EQ(divisor_before_sum(3), 2);
  EXPECT_EQ(divisor_before_sum(16), 4);
  EXPECT_EQ(divisor_before_sum(17), 8);
  EXPECT_EQ(divisor_before_sum(4096), 64);
}

} // namespace
} // namespace ampkit::dist
