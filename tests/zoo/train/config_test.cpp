#include <ampkit/zoo/train/config.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/errors.h"
#include "train/config_keys.h"

namespace ampkit::zoo {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ConfigTest, EmptyTextGivesTheDefaults) {
  EXPECT_THAT(differences(parse_config("", "x.toml"), RunConfig()), IsEmpty());
}

TEST(ConfigTest, ReadsEveryKindOfValue) {
  const auto config = parse_config(
      "[data]\nbatch_size = 32\nhorizontal_flip = false\n"
      "[optimizer]\nname = 'sgd'\nlr = 1\nweight_decay = 5e-4\n",
      "x.toml");
  EXPECT_EQ(config.data.batch_size, 32);
  EXPECT_FALSE(config.data.horizontal_flip);
  EXPECT_EQ(config.optimizer.name, "sgd");
  EXPECT_EQ(config.optimizer.lr, 1.0); // an integer where a number is wanted
  EXPECT_EQ(config.optimizer.weight_decay, 5e-4);
}

TEST(ConfigTest, UnknownKeyNamesLineAndNearest) {
  EXPECT_ERROR(
      parse_config("[train]\nepochs = 1\nsede = 3\n", "a.toml"),
      ConfigError,
      "a.toml:3: train.sede: unknown key, did you mean train.seed?");
  EXPECT_ERROR(
      parse_config("[train]\nlr = 1.0\n", "a.toml"),
      ConfigError,
      "a.toml:2: train.lr: unknown key, did you mean optimizer.lr?");
  EXPECT_ERROR(
      parse_config("[train]\nzzzzzzzz = 1.0\n", "a.toml"),
      ConfigError,
      "a.toml:2: train.zzzzzzzz: unknown key; `ampkit train --keys`");
}

TEST(ConfigTest, UnknownSectionNamesLineAndNearest) {
  EXPECT_ERROR(
      parse_config("\n[optimiser]\nlr = 1.0\n", "a.toml"),
      ConfigError,
      "a.toml:2: [optimiser]: unknown section, did you mean optimizer?",
      "sections are model, data, precision");
}

TEST(ConfigTest, KeyOutsideASectionAndSectionThatIsAValueAreRefused) {
  EXPECT_ERROR(
      parse_config("epochs = 3\n", "a.toml"),
      ConfigError,
      "a.toml:1: epochs: unknown key, did you mean train.epochs?");
  EXPECT_ERROR(
      parse_config("train = 3\n", "a.toml"),
      ConfigError,
      "a.toml:1: train: expected a section, found 3");
}

TEST(ConfigTest, WrongTypeSaysWhatWasExpectedAndFound) {
  EXPECT_ERROR(
      parse_config("[train]\nepochs = 'three'\n", "a.toml"),
      ConfigError,
      "a.toml:2: train.epochs: expected an integer >= 1, found 'three'");
  EXPECT_ERROR(
      parse_config("[train]\nepochs = 2.5\n", "a.toml"),
      ConfigError,
      "expected an integer >= 1, found 2.5");
  EXPECT_ERROR(
      parse_config("[data]\nhorizontal_flip = 1\n", "a.toml"),
      ConfigError,
      "data.horizontal_flip: expected true or false, found 1");
  EXPECT_ERROR(
      parse_config("[data]\npath = ['a']\n", "a.toml"),
      ConfigError,
      "data.path: expected a text, found [ 'a' ]");
}

TEST(ConfigTest, WrongRangeOrChoiceSaysWhatIsAllowed) {
  EXPECT_ERROR(
      parse_config("[train]\nepochs = 0\n", "a.toml"),
      ConfigError,
      "expected an integer >= 1, found 0");
  EXPECT_ERROR(
      parse_config("[optimizer]\nbeta1 = 1.0\n", "a.toml"),
      ConfigError,
      "expected a number in [0, 1), found 1.0");
  EXPECT_ERROR(
      parse_config("[optimizer]\nlr = nan\n", "a.toml"),
      ConfigError,
      "optimizer.lr: expected a number >= 0, found nan");
  EXPECT_ERROR(
      parse_config("[optimizer]\nname = 'adan'\n", "a.toml"),
      ConfigError,
      "optimizer.name: expected one of adafactor, adagrad, adam, adamw, lamb, "
      "lion, muon, rmsprop, sgd, found 'adan'");
  EXPECT_ERROR(
      parse_config("[precision]\npreset = 'bf16-split'\n", "a.toml"),
      ConfigError,
      "expected one of fp32, fp16-mixed, bf16-mixed, fp16-master, bf16-master, "
      "bf16-true, fp16-true, fp8-mixed, found 'bf16-split'");
}

TEST(ConfigTest, NumberOfFewValuesTakesThoseOnly) {
  for (const auto& [text, norm] :
       {std::pair("1", 1.0), {"2.0", 2.0}, {"inf", INFINITY}}) {
    const auto set = std::string("optimizer.norm_type=") + text;
    const auto config = parse_config("", "a.toml", {set});
    EXPECT_EQ(config.optimizer.norm_type, norm);
    const auto again = parse_config(to_toml(config), "b.toml");
    EXPECT_EQ(again.optimizer.norm_type, norm);
  }
  EXPECT_ERROR(
      parse_config("[optimizer]\nnorm_type = 3\n", "a.toml"),
      ConfigError,
      "a.toml:2: optimizer.norm_type: expected one of 1, 2, inf, found 3");
}

TEST(ConfigTest, ListOfNumbersIsReadWrittenAndChecked) {
  const auto config = parse_config(
      "[schedule]\nname = 'multi-step'\nmilestones = [0.25, 0.5]\n",
      "a.toml",
      {"schedule.milestones=[0.125]"});
  EXPECT_EQ(config.schedule.milestones, std::vector<double>{0.125});
  EXPECT_THAT(to_toml(config), HasSubstr("milestones = [0.125]\n"));
  EXPECT_THAT(to_toml(RunConfig()), HasSubstr("milestones = [0.5, 0.75]\n"));
  for (const std::string wrong : {"[]", "[0.5, 1.0]", "[0.5, 'x']", "0.5"}) {
    EXPECT_ERROR(
        parse_config("", "a.toml", {"schedule.milestones=" + wrong}),
        ConfigError,
        "schedule.milestones: expected a list of numbers in (0, 1), found ");
  }
}

TEST(ConfigTest, MistypedKeysOfOptimizerAndScheduleAreNamed) {
  for (const auto& [typed, meant] :
       {std::pair("optimizer.norm_typ", "optimizer.norm_type"),
        {"optimizer.clip_valu", "optimizer.clip_value"},
        {"train.clip_factor", "optimizer.clip_factor"},
        {"optimizer.milestones", "schedule.milestones"},
        {"schedule.gama", "schedule.gamma"},
        {"precision.fp8_recipy", "precision.fp8_recipe"}}) {
    EXPECT_ERROR(
        parse_config("", "a.toml", {std::string(typed) + "=1"}),
        ConfigError,
        std::string("did you mean ") + meant + "?");
  }
}

TEST(ConfigTest, KeyThatTheOptimizerOrScheduleDoesNotHaveIsRefused) {
  EXPECT_ERROR(
      parse_config("[optimizer]\nbeta1 = 0.8\nname = 'sgd'\n", "a.toml"),
      ConfigError,
      "a.toml:2: optimizer.beta1: sgd does not have it; adam, adamw, lamb, "
      "lion and muon do. Leave it out, or take another optimizer.name");
  EXPECT_ERROR(
      parse_config(
          "[optimizer]\nbeta1 = 0.8\n", "a.toml", {"optimizer.name=sgd"}),
      ConfigError,
      "a.toml:2: optimizer.beta1: sgd does not have it");
  EXPECT_ERROR(
      parse_config("", "a.toml", {"optimizer.dampening=0.5"}),
      ConfigError,
      "--set optimizer.dampening=0.5: optimizer.dampening: adamw does not have "
      "it; sgd does");
  EXPECT_ERROR(
      parse_config("[schedule]\ngamma = 0.5\n", "a.toml"),
      ConfigError,
      "a.toml:2: schedule.gamma: one-cycle does not have it; multi-step, "
      "plateau and step do");
}

TEST(ConfigTest, DefaultOfAKeyForOthersIsAccepted) {
  const auto config = parse_config(
      "[optimizer]\nname = 'sgd'\nbeta1 = 0.9\n[schedule]\ngamma = 0.1\n",
      "a.toml");
  EXPECT_EQ(config.optimizer.name, "sgd");
  // What a run writes has every key in it.
  EXPECT_NO_THROW(parse_config(to_toml(config), "b.toml"));
  EXPECT_NO_THROW(parse_config(
      "[optimizer]\nname = 'sgd'\ndampening = 0.5\n",
      "a.toml",
      {"optimizer.beta1=0.8", "optimizer.beta1=0.9"}));
}

TEST(ConfigTest, AliasOfAPresetIsStoredAsThePreset) {
  const auto config =
      parse_config("[precision]\npreset = '16-mixed'\n", "a.toml");
  EXPECT_EQ(config.precision.preset, "fp16-mixed");
  const auto overridden =
      parse_config("", "a.toml", {"precision.preset=O2"}).precision.preset;
  EXPECT_EQ(overridden, "fp16-master");
}

TEST(ConfigTest, PresetsWithoutMastersHaveTheirAliasesToo) {
  for (const std::string name : {"O3", "16-true", "fp16-true"}) {
    const auto config =
        parse_config("", "a.toml", {"precision.preset=" + name});
    EXPECT_EQ(config.precision.preset, "fp16-true") << name;
  }
}

TEST(ConfigTest, BrokenTomlNamesTheLine) {
  EXPECT_ERROR(
      parse_config("[train]\nepochs = \n", "a.toml"),
      ConfigError,
      "a.toml:2: not TOML:");
}

TEST(ConfigTest, OverridesWinAndAreCheckedTheSame) {
  const auto config = parse_config(
      "[train]\nepochs = 3\n",
      "a.toml",
      {"train.epochs=5",
       "data.path=/some where/x",
       "model.name=\"resnet18\"",
       "optimizer.lr=1e-4",
       "output.report=false"});
  EXPECT_EQ(config.train.epochs, 5);
  EXPECT_EQ(config.data.path, "/some where/x");
  EXPECT_EQ(config.model.name, "resnet18");
  EXPECT_EQ(config.optimizer.lr, 1e-4);
  EXPECT_FALSE(config.output.report);

  const auto with = [](const std::string& text) {
    return parse_config("", "a.toml", {text});
  };
  EXPECT_ERROR(
      with("train.epoch=5"),
      ConfigError,
      "--set train.epoch=5: train.epoch: unknown key, did you mean "
      "train.epochs?");
  EXPECT_ERROR(
      with("train.epochs=many"),
      ConfigError,
      "--set train.epochs=many: train.epochs: expected an integer >= 1, "
      "found ");
  EXPECT_ERROR(with("train.epochs"), ConfigError, "expected section.key=value");
  EXPECT_ERROR(
      with("train.epochs="), ConfigError, "expected an integer >= 1, found ");
}

TEST(ConfigTest, WrittenConfigurationReadsBackEqual) {
  RunConfig config;
  config.data.path = "with \"quotes\", a \\ and\ta tab";
  config.optimizer.lr = 0.1;
  config.optimizer.eps = 1e-20;
  config.precision.init_scale = 1024;
  config.train.seed = 123456789012345;
  config.output.report = false;
  const auto again = parse_config(to_toml(config), "b.toml");
  EXPECT_THAT(differences(config, again), IsEmpty());
  EXPECT_EQ(to_toml(again), to_toml(config));
}

TEST(ConfigTest, DifferencesNameKeyAndBothValues) {
  RunConfig changed;
  changed.train.epochs = 9;
  changed.optimizer.name = "sgd";
  EXPECT_THAT(
      differences(RunConfig(), changed),
      ::testing::ElementsAre(
          "optimizer.name: \"adamw\" -> \"sgd\"", "train.epochs: 3 -> 9"));
}

TEST(ConfigTest, FileGivesTheRunItsName) {
  const auto path = std::filesystem::temp_directory_path() / "my-run.toml";
  std::ofstream(path) << "[train]\nepochs = 1\n";
  EXPECT_EQ(load_config(path.string()).output.name, "my-run");
  EXPECT_EQ(
      load_config(path.string(), {"output.name=other"}).output.name, "other");
  std::filesystem::remove(path);
}

TEST(ConfigTest, MissingFileIsNamed) {
  EXPECT_ERROR(
      load_config("/nonexistent/a.toml"),
      ConfigError,
      "/nonexistent/a.toml: cannot be read");
}

TEST(ConfigTest, EveryShippedConfigurationIsValid) {
  const auto folder = std::filesystem::path(AMPKIT_SOURCE_DIR) / "configs";
  int64_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    EXPECT_NO_THROW(load_config(file.path().string())) << file.path();
    ++count;
  }
  EXPECT_GE(count, 1);
}

TEST(ConfigTest, EveryKeyIsExplained) {
  for (const auto& key : config_keys()) {
    EXPECT_THAT(key.name, HasSubstr("."));
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.expected.empty()) << key.name;
    EXPECT_FALSE(key.default_value.empty()) << key.name;
  }
}

TEST(NearestKeyTest, IsOfTheSameNameInAnySectionElseOfFewMistakes) {
  const std::vector<std::string> known{"train.epochs", "train.steps"};
  EXPECT_EQ(nearest_key("train.epcohs", known), "train.epochs");
  EXPECT_EQ(nearest_key("steps", known), "train.steps");
  EXPECT_EQ(nearest_key("a.long.section.steps", known), "train.steps");
  EXPECT_EQ(nearest_key("something.else", known), "");
}

} // namespace
} // namespace ampkit::zoo
