#include "kernels/cpu_16bit_workspace.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::kernels {
namespace {

TEST(Cpu16BitWorkspaceTest, CopiesAreLaidOutAsToWouldDo) {
  const auto base = torch::randn({6, 8}).to(torch::kBFloat16);
  for (const auto& tensor :
       {base, base.t(), base.slice(1, 0, 8, 2), base.slice(0, 1, 3), base[0]}) {
    Workspace workspace{&tensor};
    const auto copy = workspace.upcast(tensor);
    const auto expected = tensor.to(torch::kFloat);
    EXPECT_TRUE(copy.equal(expected));
    EXPECT_EQ(copy.strides(), expected.strides());
  }
}

TEST(Cpu16BitWorkspaceTest, UndefinedAndEmptyNeedNoRoom) {
  const torch::Tensor undefined;
  const auto empty = torch::empty({0, 3}, torch::kHalf);
  Workspace workspace{&undefined, &empty};
  EXPECT_FALSE(workspace.upcast(undefined).defined());
  EXPECT_EQ(workspace.upcast(empty).sizes(), at::IntArrayRef({0, 3}));
}

TEST(Cpu16BitWorkspaceTest, TheNextOpReusesTheMemory) {
  const auto tensor = torch::ones({1000}, torch::kHalf);
  const void* first = nullptr;
  {
    Workspace workspace{&tensor};
    first = workspace.upcast(tensor).const_data_ptr();
  }
  Workspace workspace{&tensor};
  EXPECT_EQ(workspace.upcast(tensor).const_data_ptr(), first);
}

TEST(Cpu16BitWorkspaceTest, ATensorThatOutlivesItsOpKeepsItsMemory) {
  const auto ones = torch::ones({1000}, torch::kHalf);
  const auto twos = ones * 2;
  torch::Tensor survivor;
  {
    Workspace workspace{&ones};
    survivor = workspace.upcast(ones);
  }
  Workspace workspace{&twos};
  workspace.upcast(twos);
  Workspace::release();
  EXPECT_TRUE(survivor.equal(torch::ones({1000})));
}

TEST(Cpu16BitWorkspaceTest, ThreadsDoNotShareOneBlock) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i, &wrong] {
      const auto tensor = torch::full({5000}, i, torch::kHalf);
      for (int repeat = 0; repeat < 50; ++repeat) {
        Workspace workspace{&tensor};
        const auto copy = workspace.upcast(tensor);
        wrong[static_cast<size_t>(i)] += (copy != i).sum().item<int>();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Cpu16BitWorkspaceTest, MoreThanWasAskedForIsAnError) {
  const auto tensor = torch::ones({16}, torch::kHalf);
  Workspace::release();
  Workspace workspace{&tensor};
  workspace.upcast(tensor);
  EXPECT_ERROR(workspace.upcast(tensor), c10::Error, "INTERNAL ASSERT FAILED");
}

} // namespace
} // namespace ampkit::kernels
