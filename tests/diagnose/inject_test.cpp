#include <ampkit/diagnose/inject.h>

#include <ampkit/diagnose/watch.h>
#include <torch/torch.h>

#include "diagnose/small_nets.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

TEST(FaultTest, TextIsReadInAnyOrderAndWrittenBack) {
  const auto fault =
      Fault::parse("overflow rank=1 at=encoder.3 direction=backward step=40");
  const Fault expected{
      .kind = Fault::Kind::overflow,
      .at = "encoder.3",
      .step = 40,
      .rank = 1,
      .direction = Direction::backward};
  EXPECT_EQ(fault, expected);
  EXPECT_EQ(
      to_string(fault),
      "overflow at=encoder.3 step=40 rank=1 direction=backward");
  for (const char* kind :
       {"nan", "inf", "-inf", "overflow", "underflow", "zero"}) {
    const auto each = Fault::parse(std::string(kind) + " at=fc");
    EXPECT_EQ(Fault::parse(to_string(each)), each);
  }
}

TEST(FaultTest, MistakesAreNamedWithTheNearestWord) {
  EXPECT_ERROR(
      Fault::parse("overflw at=fc"),
      c10::ValueError,
      "did you mean 'overflow'");
  EXPECT_ERROR(
      Fault::parse("nan at=fc setp=3"), c10::ValueError, "did you mean 'step'");
  EXPECT_ERROR(
      Fault::parse("nan at=fc direction=bakward"),
      c10::ValueError,
      "did you mean 'backward'");
  EXPECT_ERROR(
      Fault::parse("nan at=fc step=x"), c10::ValueError, "step", "got 'x'");
  EXPECT_ERROR(Fault::parse("nan at="), c10::ValueError, "at has no value");
  EXPECT_ERROR(Fault::parse("nan at=a..b"), c10::ValueError, "'a..b'");
  EXPECT_ERROR(Fault::parse("nan step=1"), c10::ValueError, "at=MODULE");
  EXPECT_ERROR(Fault::parse(" "), c10::ValueError, "nothing given");
}

class InjectTest : public testing::Test {
 protected:
  InjectTest() { torch::manual_seed(0); }

  std::optional<Finding> run(
      const std::string& fault, int64_t steps = 4, int rank = 0) {
    Inject inject(*net, {Fault::parse(fault)}, rank);
    Watch watch(*net, {.rank = rank});
    std::optional<Finding> found;
    for (int64_t i = 0; i < steps && !found; ++i) {
      auto step = watch.step();
      const auto planting = inject.step(i);
      net->forward(torch::randn({2, 1, 8, 8})).sum().backward();
      found = step.finish();
    }
    planted = inject.planted();
    return found;
  }

  std::shared_ptr<SmallConvNet> net = std::make_shared<SmallConvNet>();
  int64_t planted = 0;
};

TEST_F(InjectTest, AForwardFaultIsSeenWhereItWasPlanted) {
  for (const char* kind : {"nan", "inf", "-inf"}) {
    const auto found = run(std::string(kind) + " at=fc step=2");
    ASSERT_TRUE(found.has_value()) << kind;
    EXPECT_EQ(found->module, "fc") << to_string(*found);
    EXPECT_EQ(found->step, 2);
    EXPECT_EQ(found->direction, Direction::forward);
    EXPECT_EQ(planted, 1);
  }
}

TEST_F(InjectTest, ABackwardFaultReachesTheGradients) {
  const auto found = run("nan at=conv2 step=1 direction=backward");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 1);
  EXPECT_EQ(found->direction, Direction::backward) << to_string(*found);
  EXPECT_EQ(planted, 1);
}

TEST_F(InjectTest, ZeroAndUnderflowMakeNothingInfinite) {
  for (const char* kind : {"zero", "underflow"}) {
    EXPECT_FALSE(run(std::string(kind) + " at=conv2").has_value());
    EXPECT_EQ(planted, 1);
  }
}

TEST_F(InjectTest, AnotherRankAndALaterStepStayAsTheyAre) {
  EXPECT_FALSE(run("nan at=fc rank=1").has_value());
  EXPECT_EQ(planted, 0);
  EXPECT_TRUE(run("nan at=fc rank=1", 1, /*rank=*/1).has_value());
  EXPECT_FALSE(run("nan at=fc step=9").has_value());
}

TEST_F(InjectTest, AModuleThatIsNotThereIsRefused) {
  EXPECT_ERROR(
      Inject(*net, {Fault::parse("nan at=covn2")}),
      c10::ValueError,
      "Inject",
      "did you mean 'conv2'");
  EXPECT_ERROR(Inject(*net, {}, -1), c10::ValueError, "rank", "got -1");
}

TEST_F(InjectTest, OneStepAtATimeOnAThread) {
  Inject inject(*net, {});
  const auto planting = inject.step(0);
  EXPECT_ERROR(
      auto other = inject.step(1), c10::Error, "Inject::step", "already");
}

} // namespace
} // namespace ampkit::diagnose
