#include <ampkit/io/name_map.h>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::io {
namespace {

StateDict state_of(const std::vector<std::string>& names) {
  StateDict state;
  for (const auto& name : names) {
    state.set(name, torch::full({1}, static_cast<double>(state.size())));
  }
  return state;
}

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& entry : state.entries()) {
    names.push_back(entry.first);
  }
  return names;
}

TEST(NameMapTest, FirstPrefixThatFitsIsReplaced) {
  const NameMap map = replace_prefixes({{"module.", ""}, {"m", "n"}});
  EXPECT_EQ(map("module.m.weight"), "m.weight");
  EXPECT_EQ(map("m.weight"), "n.weight");
  EXPECT_EQ(map("weight"), "weight");
}

TEST(NameMapTest, PatternsApplyInOrder) {
  const NameMap map = replace_patterns(
      {{"^blocks\\.(\\d+)\\.", "layer$1."}, {"gamma$", "weight"}});
  EXPECT_EQ(map("blocks.12.norm.gamma"), "layer12.norm.weight");
  EXPECT_ERROR(
      replace_patterns({{"(", ""}}), c10::ValueError, "'(' is not a regular");
}

TEST(NameMapTest, OrderStaysAndEmptyNamesAreDropped) {
  const StateDict state =
      renamed(state_of({"a.x", "drop", "a.y"}), [](const std::string& name) {
        return name == "drop" ? "" : "b" + name.substr(1);
      });
  EXPECT_EQ(names_of(state), (std::vector<std::string>{"b.x", "b.y"}));
  EXPECT_EQ(state.tensor("b.y").item<int>(), 2);
}

TEST(NameMapTest, NamesThatFallTogetherAreListed) {
  EXPECT_ERROR(
      renamed(
          state_of({"a.x", "b.x", "c"}),
          replace_prefixes({{"a.", ""}, {"b.", ""}})),
      c10::Error,
      "'a.x' and 'b.x' would both be 'x'");
}

} // namespace
} // namespace ampkit::io
