#include <ampkit/io/nearest_name.h>

#include <gtest/gtest.h>

namespace ampkit {
namespace {

const std::vector<std::string> kKnown{"softmax", "log_softmax", "mm", "epochs"};

TEST(NearestNameTest, EachKindOfMistakeIsOne) {
  EXPECT_EQ(nearest_name("softmux", kKnown), "softmax"); // changed
  EXPECT_EQ(nearest_name("softmaxx", kKnown), "softmax"); // added
  EXPECT_EQ(nearest_name("softmx", kKnown), "softmax"); // missing
  // Two swaps: four letters, if a swap counted as two changes.
  EXPECT_EQ(nearest_name("peohcs", kKnown), "epochs");
}

TEST(NearestNameTest, FewestMistakesWinAndTheFirstOfEqualOnes) {
  EXPECT_EQ(nearest_name("log_softmax", kKnown), "log_softmax");
  EXPECT_EQ(nearest_name("b", {"a", "c"}), "a");
}

TEST(NearestNameTest, NothingIsNearToWhatIsFar) {
  EXPECT_EQ(nearest_name("convolution", kKnown), "");
  EXPECT_EQ(nearest_name("batch_norm", {}), "");
  EXPECT_EQ(nearest_name("", kKnown), "mm"); // two letters away
}

} // namespace
} // namespace ampkit
