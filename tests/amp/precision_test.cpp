#include <ampkit/amp/precision.h>

#include <sstream>

#include "support/errors.h"

namespace ampkit {
namespace {

TEST(PrecisionTest, EveryNameParsesAndPrintsBack) {
  for (const std::string& name : Precision::names()) {
    std::ostringstream out;
    out << Precision::parse(name);
    EXPECT_EQ(out.str(), name);
  }
}

TEST(PrecisionTest, UnknownNameListsPresetsAndAliases) {
  EXPECT_ERROR(
      Precision::parse("fp17"),
      c10::ValueError,
      "'fp17'",
      "valid are fp32, fp16-mixed, bf16-mixed, fp16-master",
      "fp8-mixed and the aliases 32-true (fp32), 16-mixed (fp16-mixed)",
      "O3 (fp16-true)");
  EXPECT_ERROR(Precision::parse(""), c10::ValueError, "unknown precision ''");
  EXPECT_ERROR(Precision::parse("o1"), c10::ValueError, "'o1'");
}

TEST(PrecisionTest, LevelsOfApexAreOurPresets) {
  EXPECT_EQ(Precision::parse("O0").to_string(), "fp32");
  EXPECT_EQ(Precision::parse("O1").to_string(), "fp16-mixed");
  EXPECT_EQ(Precision::parse("O2").to_string(), "fp16-master");
  EXPECT_EQ(Precision::parse("O3").to_string(), "fp16-true");
}

TEST(PrecisionTest, NamesOfLightningAreOurPresets) {
  EXPECT_EQ(Precision::parse("32-true").to_string(), "fp32");
  EXPECT_EQ(Precision::parse("16-mixed").to_string(), "fp16-mixed");
  EXPECT_EQ(Precision::parse("bf16-mixed").to_string(), "bf16-mixed");
  EXPECT_EQ(Precision::parse("16-true").to_string(), "fp16-true");
  EXPECT_EQ(Precision::parse("bf16-true").to_string(), "bf16-true");
}

TEST(PrecisionTest, AliasesNameThePresetTheyStandForAndHideNone) {
  const auto names = Precision::names();
  ASSERT_FALSE(Precision::aliases().empty());
  for (const auto& [alias, preset] : Precision::aliases()) {
    EXPECT_EQ(Precision::parse(alias).to_string(), preset);
    EXPECT_THAT(names, ::testing::Not(::testing::Contains(alias)));
  }
}

TEST(PrecisionTest, PureFp16HasNeitherMastersNorALossScale) {
  const Precision precision = Precision::fp16_true();
  EXPECT_EQ(precision.compute, c10::ScalarType::Half);
  EXPECT_EQ(precision.parameters, c10::ScalarType::Half);
  EXPECT_EQ(precision.reduce, c10::ScalarType::Half);
  EXPECT_FALSE(precision.master.has_value());
  EXPECT_FALSE(precision.scales_loss);
}

TEST(PrecisionTest, LossIsScaledWhereAnExponentIsNarrowUnlessAllIsFp16) {
  for (const std::string& name : Precision::names()) {
    const bool scales = name.starts_with("fp8") ||
                        (name.starts_with("fp16") && name != "fp16-true");
    EXPECT_EQ(Precision::parse(name).scales_loss, scales) << name;
  }
}

TEST(PrecisionTest, ChangedPresetPrintsItsFields) {
  Precision precision = Precision::bf16_mixed();
  precision.reduce = c10::ScalarType::BFloat16;
  EXPECT_EQ(
      precision.to_string(),
      "compute=BFloat16 parameters=Float master=none reduce=BFloat16 "
      "buffers=Float scales_loss=false");
}

} // namespace
} // namespace ampkit
