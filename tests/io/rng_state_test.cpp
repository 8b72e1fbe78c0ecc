#include <ampkit/io/rng_state.h>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::io {
namespace {

TEST(RngStateTest, PutBackGivesTheSameNumbersAgain) {
  torch::manual_seed(1);
  torch::randn({1}); // an odd count: the generator keeps the second normal
  const StateDict state = rng_state();
  const auto uniform = torch::rand({100});
  const auto normal = torch::randn({3});
  set_rng_state(state);
  EXPECT_TRUE(torch::rand({100}).equal(uniform));
  EXPECT_TRUE(torch::randn({3}).equal(normal));
}

TEST(RngStateTest, ReadingItChangesNothing) {
  torch::manual_seed(2);
  const auto expected = torch::rand({5});
  torch::manual_seed(2);
  rng_state();
  EXPECT_TRUE(torch::rand({5}).equal(expected));
}

TEST(RngStateTest, WhatDoesNotFitIsRefusedAndNothingChanges) {
  const StateDict before = rng_state();
  EXPECT_ERROR(set_rng_state({}), c10::Error, "'cpu'");
  StateDict state;
  state.set("cpu", torch::zeros({3}, torch::kByte));
  EXPECT_ERROR(set_rng_state(state), c10::Error, "'cpu'", "[3]");
  state.set("cpu", before.tensor("cpu").to(torch::kInt));
  EXPECT_ERROR(set_rng_state(state), c10::Error, "'cpu'", "Int");
  state.set("cpu", torch::zeros_like(before.tensor("cpu")));
  state.set("cuda.99", torch::zeros({16}, torch::kByte));
  EXPECT_ERROR(set_rng_state(state), c10::Error, "'cuda.99'", "not there");
  EXPECT_TRUE(rng_state().tensor("cpu").equal(before.tensor("cpu")));
}

} // namespace
} // namespace ampkit::io
