// The pass for devices other than the CPU, run on the CPU.

#include "optim/gradient_pass.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::optim {
namespace {

using namespace std::chrono_literals;

std::vector<Work> works_of(const std::vector<at::Tensor>& grads) {
  static ParameterRecord record; // nothing in it matters here
  std::vector<Work> works;
  for (const at::Tensor& grad : grads) {
    works.push_back({.record = &record, .grad = grad});
  }
  return works;
}

TEST(GradientPassTest, ForeachOpsAgreeWithTheKernelsInAMixOfDtypes) {
  torch::manual_seed(0);
  const auto works = works_of({
      torch::randn({100}),
      torch::randn({50}).to(at::kHalf) * 300, // whose sum of squares overflows
      torch::randn({70}).to(at::kBFloat16),
      torch::randn({30}, at::kDouble),
  });
  std::vector<int64_t> counts;
  const auto exact = read_gradients(works, at::kCPU, 2, counts);
  const auto summary = read_with_foreach_ops(works, at::kCPU, 2);
  EXPECT_EQ(summary.non_finite.item<float>(), 0);
  EXPECT_EQ(summary.with_gradient, 4);
  const auto expected = exact.sum_of_squares.item<double>();
  EXPECT_NEAR(summary.sum_of_squares.item<double>(), expected, expected * 1e-6);
}

// Compiled without OpenMP, at::parallel_for() is a plain loop and says nothing.
TEST(GradientPassTest, ChunksAreSharedByTheThreadsOfLibTorch) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const auto works = works_of({torch::zeros({1'000'000})});
  const auto chunks = split_into_chunks(works);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::condition_variable both;
  for_each_chunk(chunks, /*backward=*/false, [&](size_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    both.notify_all();
    both.wait_for(lock, 10s, [&] { return threads.size() == 2; });
  });
  at::set_num_threads(before);
  EXPECT_EQ(threads.size(), 2);
}

TEST(GradientPassTest, NormsOfBothPassesAreThoseOfTheGradientsAsOneVector) {
  torch::manual_seed(1);
  const auto grads = std::vector<at::Tensor>{
      torch::randn({100000}),
      torch::randn({51}).to(at::kHalf),
      torch::randn({70}).to(at::kBFloat16),
      torch::randn({30}, at::kDouble)};
  std::vector<at::Tensor> flat;
  for (const auto& grad : grads) {
    flat.push_back(grad.to(at::kDouble));
  }
  const auto works = works_of(grads);
  for (const double type : {1.0, 2.0, double{kInf}}) {
    const auto expected =
        at::linalg_vector_norm(at::cat(flat), type).item<double>();
    std::vector<int64_t> counts;
    const auto own = read_gradients(works, at::kCPU, type, counts);
    EXPECT_NEAR(own.norm.item<double>() / expected, 1, 1e-7) << type;
    const auto foreach = read_with_foreach_ops(works, at::kCPU, type);
    // Sums in fp32.
    EXPECT_NEAR(foreach.norm.item<double>() / expected, 1, 1e-5) << type;
  }
}

TEST(GradientPassTest, ForeachOpsCountParametersThatHoldInfOrNan) {
  const auto works = works_of({
      torch::tensor({1.F, kInf, -kInf}),
      torch::ones({3}),
      torch::tensor({kInf}).to(at::kBFloat16),
  });
  EXPECT_EQ(
      read_with_foreach_ops(works, at::kCPU, 2).non_finite.item<float>(), 2);
  const auto none = read_with_foreach_ops({}, at::kCPU, 2);
  EXPECT_EQ(none.non_finite.item<float>(), 0);
  EXPECT_EQ(none.sum_of_squares.item<float>(), 0);
}

TEST(GradientPassTest, ChunksCoverEveryElementOnceInOrder) {
  const auto works =
      works_of({torch::zeros({3}), torch::zeros({0}), torch::zeros({70000})});
  size_t work = 0;
  size_t offset = 0;
  for (const Chunk& chunk : split_into_chunks(works)) {
    if (chunk.work != work) {
      EXPECT_EQ(offset, works[work].grad.numel());
      EXPECT_GT(chunk.work, work);
      work = chunk.work;
      offset = 0;
    }
    EXPECT_EQ(chunk.offset, offset);
    EXPECT_GT(chunk.size, 0);
    offset += chunk.size;
  }
  EXPECT_EQ(work, 2);
  EXPECT_EQ(offset, 70000);
}

} // namespace
} // namespace ampkit::optim
