#include <ATen/Parallel.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/zoo/train/run.h>

#include "io/temporary_folder.h"
#include "support/errors.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

class TrainPolicyTest : public ::testing::Test {
 protected:
  TrainPolicyTest() { at::set_num_threads(1); }
  ~TrainPolicyTest() override { at::set_num_threads(threads_); }

  std::string file(const std::string& text) const {
    const auto path = folder_.path() + "/policy.toml";
    io::write_text(path, text);
    return path;
  }

  static std::vector<double> losses(
      const std::string& preset, const std::string& policy) {
    auto config = small_config();
    config.precision.preset = preset;
    config.precision.policy = policy;
    config.train.steps = 4;
    const auto data = quadrants();
    Trainer trainer(config, make_model(config, data), data);
    std::vector<double> result;
    trainer.run(
        {.on_step = [&](const auto& r) { result.push_back(r.loss); },
         .on_eval = [&](const auto& r) { result.push_back(r.loss); }});
    return result;
  }

 private:
  io::TemporaryFolder folder_;
  int threads_ = at::get_num_threads();
};

TEST_F(TrainPolicyTest, NetworkThatAFilePutsInFloat32TrainsAsInFp32) {
  const auto path = file("[modules.rules]\n\"\" = \"float32\"\n");
  const auto fp32 = losses("fp32", "pytorch");
  EXPECT_EQ(losses("bf16-mixed", path), fp32);
  EXPECT_NE(losses("bf16-mixed", "pytorch"), fp32);
}

TEST_F(TrainPolicyTest, PresetsOfTheConfigurationTakeEffect) {
  const auto pytorch = losses("bf16-mixed", "pytorch");
  const auto cv = losses("bf16-mixed", "cv");
  EXPECT_NE(cv, pytorch);
  EXPECT_EQ(losses("bf16-mixed", "cv"), cv);
}

TEST_F(TrainPolicyTest, TrainerSaysWhichPolicyItRead) {
  auto config = small_config();
  config.precision.policy = "strict";
  const Trainer trainer(config, linear_model(), quadrants());
  EXPECT_EQ(trainer.policy(), PrecisionPolicy::preset("strict"));
}

TEST_F(TrainPolicyTest, PolicyThatDoesNotFitTheNetworkIsRefused) {
  auto config = small_config();
  config.precision.policy = file("[modules.rules]\nencoder = \"float32\"\n");
  EXPECT_ERROR(
      Trainer(config, linear_model(), quadrants()),
      c10::ValueError,
      "pattern 'encoder' matches no module");
  config.precision.policy = file("[ops.rules]\nsofmax = \"float32\"\n");
  EXPECT_ERROR(
      Trainer(config, linear_model(), quadrants()),
      c10::ValueError,
      "policy.toml:2: ops.rules.sofmax");
  config.precision.policy = "/no/such.toml";
  EXPECT_ERROR(
      Trainer(config, linear_model(), quadrants()),
      c10::ValueError,
      "/no/such.toml: cannot be read");
}

TEST_F(TrainPolicyTest, KeyTakesNamesAndTomlFilesOnly) {
  const auto set = [](const std::string& value) {
    return parse_config("", "c.toml", {"precision.policy=" + value});
  };
  EXPECT_EQ(set("nlp").precision.policy, "nlp");
  EXPECT_EQ(set("my/own.toml").precision.policy, "my/own.toml");
  EXPECT_ERROR(
      set("strct"),
      ConfigError,
      "precision.policy: expected one of pytorch, strict, cv, nlp, speech; or "
      "a TOML file, found 'strct'");
}

} // namespace
} // namespace ampkit::zoo
