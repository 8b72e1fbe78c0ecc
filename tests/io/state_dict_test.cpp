#include <ampkit/io/state_dict.h>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::io {
namespace {

TEST(StateDictTest, KeepsOrderOfFirstSetWhenAValueIsReplaced) {
  StateDict state;
  state.set("b", 1);
  state.set("a", 2.5);
  state.set("b", "text");
  ASSERT_EQ(state.size(), 2);
  EXPECT_EQ(state.entries()[0].first, "b");
  EXPECT_EQ(state.text("b"), "text");
  EXPECT_EQ(state.real("a"), 2.5);
}

TEST(StateDictTest, SubsetOfAPrefixGivesBackWhatSetAllPutThere) {
  StateDict inner;
  inner.set("weight", torch::ones({2}));
  inner.set("step", 3);
  StateDict outer;
  outer.set("model_name", "net");
  outer.set_all("model", inner);
  EXPECT_TRUE(outer.contains("model.weight"));
  const StateDict back = outer.subset("model");
  ASSERT_EQ(back.size(), 2);
  EXPECT_TRUE(back.tensor("weight").equal(torch::ones({2})));
  EXPECT_EQ(back.integer("step"), 3);
}

TEST(StateDictTest, WrongTypeNamesEntryExpectedAndFound) {
  StateDict state;
  state.set("scale", "high");
  EXPECT_ERROR(
      state.real("scale"), c10::Error, "'scale'", "a number", "\"high\"");
  state.set("scale", torch::zeros({2, 3}));
  EXPECT_ERROR(state.integer("scale"), c10::Error, "tensor Float [2, 3]");
}

TEST(StateDictTest, MissingEntryIsNamed) {
  EXPECT_ERROR(StateDict().tensor("weight"), c10::Error, "'weight'");
}

TEST(StateDictTest, RefusesEmptyNamesAndUndefinedTensorsUnchanged) {
  StateDict state;
  EXPECT_ERROR(state.set("", 1), c10::ValueError, "empty");
  EXPECT_ERROR(
      state.set("weight", torch::Tensor()), c10::ValueError, "'weight'");
  EXPECT_TRUE(state.empty());
}

TEST(StateDictTest, RealAcceptsAnIntegerButIntegerRefusesAReal) {
  StateDict state;
  state.set("n", 3);
  state.set("x", 1.5);
  EXPECT_EQ(state.real("n"), 3.0);
  EXPECT_ERROR(state.integer("x"), c10::Error, "'x'", "an integer");
  EXPECT_ERROR(state.boolean("n"), c10::Error, "a boolean");
}

} // namespace
} // namespace ampkit::io
