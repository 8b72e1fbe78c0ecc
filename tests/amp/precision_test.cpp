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

TEST(PrecisionTest, UnknownNameListsTheValidOnes) {
  EXPECT_ERROR(
      Precision::parse("fp17"),
      c10::ValueError,
      "'fp17'",
      "fp32, fp16-mixed, bf16-mixed, fp16-master",
      "fp8-mixed");
}

TEST(PrecisionTest, OnlyTheFp16AndFp8PresetsScaleTheLoss) {
  for (const std::string& name : Precision::names()) {
    const bool narrow_exponent =
        name.starts_with("fp16") || name.starts_with("fp8");
    EXPECT_EQ(Precision::parse(name).scales_loss, narrow_exponent) << name;
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
