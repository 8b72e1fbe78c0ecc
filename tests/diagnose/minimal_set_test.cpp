#include <ampkit/diagnose/minimal_set.h>

#include <algorithm>
#include <random>

#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

using Names = std::vector<std::string>;

Names numbered(size_t count) {
  Names names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back("h." + std::to_string(i));
  }
  return names;
}

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool contains_all(const Names& names, const Names& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& name) {
    return contains(names, name);
  });
}

/// `count` of `from` at random, in their order there.
Names some_of(const Names& from, size_t count, std::mt19937& random) {
  Names result;
  std::sample(
      from.begin(), from.end(), std::back_inserter(result), count, random);
  return result;
}

class MinimalSetOf48 : public testing::TestWithParam<size_t> {};

TEST_P(MinimalSetOf48, FindsThePlantedSetInAtMost40Runs) {
  const auto layers = numbered(48);
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const auto planted = some_of(layers, GetParam(), random);
    const auto found = find_minimal_set(layers, [&](const Names& chosen) {
      return contains_all(chosen, planted);
    });
    EXPECT_EQ(found.end, SearchEnd::found);
    EXPECT_EQ(found.chosen, planted);
    EXPECT_LE(found.runs, 40);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MinimalSetOf48, testing::Values(1, 2, 5));

TEST(MinimalSetTest, OfTwoThatWouldDoTheOneAtTheFrontIsKept) {
  const auto found = find_minimal_set(numbered(8), [](const Names& chosen) {
    return contains(chosen, "h.2") || contains(chosen, "h.6");
  });
  EXPECT_EQ(found.chosen, Names{"h.2"});
}

TEST(MinimalSetTest, NothingOfTheResultCanBeLeftOut) {
  // Any two of h.1, h.3, h.5, and h.7.
  const auto good = [](const Names& chosen) {
    const auto n = contains(chosen, "h.1") + contains(chosen, "h.3") +
                   contains(chosen, "h.5");
    return n >= 2 && contains(chosen, "h.7");
  };
  const auto found = find_minimal_set(numbered(16), good);
  EXPECT_TRUE(good(found.chosen));
  for (const auto& name : found.chosen) {
    auto fewer = found.chosen;
    std::erase(fewer, name);
    EXPECT_FALSE(good(fewer)) << name;
  }
}

TEST(MinimalSetTest, TellsWhetherAnyIsNeededAndWhetherAllHelp) {
  const auto candidates = numbered(5);
  const auto none =
      find_minimal_set(candidates, [](const Names&) { return true; });
  EXPECT_EQ(none.end, SearchEnd::none_needed);
  EXPECT_TRUE(none.chosen.empty());
  EXPECT_EQ(none.runs, 1);
  const auto all =
      find_minimal_set(candidates, [](const Names&) { return false; });
  EXPECT_EQ(all.end, SearchEnd::none_helps);
  EXPECT_TRUE(all.chosen.empty());
  EXPECT_EQ(all.runs, 2);
  const auto nothing = find_minimal_set({}, [](const Names&) { return false; });
  EXPECT_EQ(nothing.end, SearchEnd::none_helps);
}

TEST(MinimalSetTest, AnInterruptedSearchGoesOnWhereItWas) {
  const auto layers = numbered(48);
  const Names planted{"h.7", "h.40"};
  const auto good = [&](const Names& chosen) {
    return contains_all(chosen, planted);
  };
  const auto whole = find_minimal_set(layers, good);
  MinimalSetOptions options;
  int64_t runs = 0;
  // One run at a time.
  for (;;) {
    std::vector<SearchTrial> seen;
    options.on_run = [&](const SearchTrial& trial, int64_t count) {
      EXPECT_EQ(count, 1);
      seen.push_back(trial);
    };
    options.interrupted = [&] { return !seen.empty(); };
    const auto part = find_minimal_set(layers, good, options);
    runs += part.runs;
    if (part.end == SearchEnd::found) {
      EXPECT_EQ(part.chosen, planted);
      break;
    }
    EXPECT_EQ(part.end, SearchEnd::interrupted);
    ASSERT_EQ(seen.size(), 1);
    options.known.push_back(seen.front());
  }
  EXPECT_EQ(runs, whole.runs);
}

TEST(MinimalSetTest, OutOfRunsGivesTheSmallestThatWasGood) {
  const auto layers = numbered(48);
  const auto good = [](const Names& chosen) { return contains(chosen, "h.3"); };
  MinimalSetOptions options;
  options.max_runs = 4; // none, all, 24, 12
  const auto found = find_minimal_set(layers, good, options);
  EXPECT_EQ(found.end, SearchEnd::out_of_runs);
  EXPECT_EQ(found.runs, 4);
  EXPECT_EQ(found.chosen, Names(layers.begin(), layers.begin() + 12));
  options.max_runs = 1;
  EXPECT_TRUE(find_minimal_set(layers, good, options).chosen.empty());
}

TEST(MinimalSetTest, BadArgumentsAreNamed) {
  const auto good = [](const Names&) { return true; };
  EXPECT_ERROR(
      find_minimal_set({"a", "b", "a"}, good),
      c10::ValueError,
      "the candidate \"a\" is listed twice");
  EXPECT_ERROR(
      find_minimal_set({"a"}, good, {.max_runs = -1}),
      c10::ValueError,
      "max_runs must be >= 0, got -1");
  EXPECT_ERROR(
      find_minimal_set({"a"}, good, {.known = {{.chosen = {"b"}}}}),
      c10::ValueError,
      "a known trial names \"b\"",
      "none of the 1 candidates");
}

} // namespace
} // namespace ampkit::diagnose
