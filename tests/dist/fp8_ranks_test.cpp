// Fp8Options::reduce_amax over a process group: two ranks, as threads.

#include <future>

#include <ampkit/amp/fp8.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "amp/fp8_support.h"
#include "dist/process_group_gloo.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit {
namespace {

constexpr int kRanks = 2;

using c10d::ProcessGroupGloo;

c10::intrusive_ptr<ProcessGroupGloo> join_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  auto options = ProcessGroupGloo::Options::create(std::chrono::seconds(30));
  options->devices.push_back(
      ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<ProcessGroupGloo>(store, rank, kRanks, options);
}

/// What `body(rank, group)` gives on each of the ranks.
template <class Body>
auto on_each_rank(const Body& body) {
  using Result = std::invoke_result_t<Body, int, ProcessGroupGloo&>;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::future<Result>> running;
  for (int rank = 0; rank < kRanks; ++rank) {
    running.push_back(std::async(std::launch::async, [&body, store, rank] {
      return body(rank, *join_group(store, rank));
    }));
  }
  std::vector<Result> results;
  for (auto& result : running) {
    results.push_back(result.get());
  }
  return results;
}

/// As docs/fp8.md shows.
Fp8Options reduced_over(ProcessGroupGloo& group) {
  return {
      .recipe = Fp8Recipe::delayed,
      .amax_history_len = 4,
      .reduce_amax = [&group](torch::Tensor& amaxes) {
        std::vector<torch::Tensor> tensors{amaxes};
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::MAX;
        group.allreduce(tensors, options)->wait();
      }};
}

Fp8Options not_reduced() {
  return {.recipe = Fp8Recipe::delayed, .amax_history_len = 4};
}

/// A step on a batch of inputs and gradients `size` times the usual.
void step(OneLayer& layer, float size, float bad_gradient = 0) {
  auto gradient = torch::full({4, 16}, size);
  gradient[1][2] += bad_gradient;
  layer.fp8.linear(layer.input.detach() * size, layer.weight, layer.bias)
      .backward(gradient.to(torch::kBFloat16));
  layer.fp8.update();
}

torch::Tensor saved(const OneLayer& layer, const std::string& what) {
  return layer.fp8.state_dict().tensor("0." + what);
}

// Batches of rank 1 are larger in steps 0 and 2, those of rank 0 in step 1.
constexpr float kSizes[kRanks][3] = {{1, 16, 1}, {4, 2, 8}};
constexpr float kLargest[] = {4, 16, 8};

TEST(Fp8RanksTest, ScalesDoNotDriftApartOverRanks) {
  const auto scales = on_each_rank([](int rank, ProcessGroupGloo& group) {
    OneLayer layer(reduced_over(group));
    std::vector<torch::Tensor> result;
    for (const float size : kSizes[rank]) {
      step(layer, size);
      result.push_back(saved(layer, "scale"));
      result.push_back(saved(layer, "amax_history"));
    }
    return result;
  });
  EXPECT_EQ(scales[0].size(), 6);
  for (size_t i = 0; i < scales[0].size(); ++i) {
    EXPECT_TRUE(scales[0][i].equal(scales[1][i]))
        << i << scales[0][i] << scales[1][i];
  }
  // As one process that saw the largest of both batches.
  OneLayer whole(not_reduced());
  for (size_t i = 0; i < std::size(kLargest); ++i) {
    step(whole, kLargest[i]);
    EXPECT_TRUE(scales[0][2 * i].equal(saved(whole, "scale"))) << i;
  }
}

TEST(Fp8RanksTest, WithoutTheReductionScalesDoDriftApart) {
  const auto scales = on_each_rank([](int rank, ProcessGroupGloo&) {
    OneLayer layer(not_reduced());
    step(layer, kSizes[rank][0]);
    return saved(layer, "scale");
  });
  const auto same = scales[0].eq(scales[1]);
  EXPECT_FALSE(same[kInputColumn].item<bool>());
  EXPECT_FALSE(same[kGradientColumn].item<bool>());
  EXPECT_TRUE(same[kWeightColumn].item<bool>());
}

TEST(Fp8RanksTest, OverflowOnOneRankLeavesTheScalesOfAllAlike) {
  for (const float bad : {kInf, kNan}) {
    const auto states = on_each_rank([&](int rank, ProcessGroupGloo& group) {
      OneLayer layer(reduced_over(group));
      step(layer, 2, rank == 1 ? bad : 0);
      step(layer, 2);
      return std::pair(saved(layer, "scale"), saved(layer, "amax_history"));
    });
    EXPECT_TRUE(states[0].first.equal(states[1].first)) << bad;
    EXPECT_TRUE(states[0].second.equal(states[1].second)) << bad;
    EXPECT_EQ(states[0].first[kGradientColumn].item<float>(), 57344.0F / 2);
  }
}

// As the experts of a mixture, of which a batch needs some.
TEST(Fp8RanksTest, RankThatSkippedALayerHasTheScalesOfTheOthers) {
  const auto scales = on_each_rank([](int rank, ProcessGroupGloo& group) {
    OneLayer layer(reduced_over(group));
    if (rank == 0) {
      layer.fp8.update();
    } else {
      step(layer, 3);
    }
    return saved(layer, "scale");
  });
  EXPECT_TRUE(scales[0].equal(scales[1]));
  EXPECT_EQ(scales[0][kGradientColumn].item<float>(), 57344.0F / 3);
}

} // namespace
} // namespace ampkit
