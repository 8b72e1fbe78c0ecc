#include <ampkit/amp/precision_policy.h>

#include <filesystem>

#include <ampkit/error.h>
#include <torch/torch.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

PrecisionPolicy parse(const std::string& text) {
  return parse_precision_policy(text, "p.toml");
}

TEST(PrecisionPolicyTest, FileSaysBaseRulesAndReasons) {
  const auto policy = parse(R"(
[ops]
base = "strict"

[ops.rules]
softmax = "lower-precision"
"mean.dim" = { rule = "inputs", device = "cpu", reason = "short rows" }

[modules.rules]
"encoder.*.ffn" = "float32"
head = { dtype = "bfloat16", reason = "wide", optional = true }
)");
  PrecisionPolicy expected;
  expected.ops = OpPolicy::strict();
  expected.ops.set("softmax", OpRule::lower_precision)
      .set("mean.dim", OpRule::inputs, "short rows", at::kCPU);
  expected.modules.set("encoder.*.ffn", at::kFloat)
      .set({"head", at::kBFloat16, "wide", /*optional=*/true});
  EXPECT_EQ(policy, expected);
  EXPECT_EQ(policy.ops.rule("softmax", at::kCUDA), OpRule::lower_precision);
  EXPECT_EQ(policy.ops.rule("mean.dim", at::kCUDA), OpRule::float32);
}

TEST(PrecisionPolicyTest, EmptyFileIsPytorch) {
  EXPECT_EQ(parse(""), PrecisionPolicy{});
  EXPECT_EQ(parse(""), PrecisionPolicy::preset("pytorch"));
}

TEST(PrecisionPolicyTest, RulesKeepTheOrderOfTheFile) {
  const auto policy = parse(
      "[modules.rules]\nz = \"float32\"\na = \"float16\"\n\"\" = "
      "\"bfloat16\"\nm = \"float32\"\n");
  std::vector<std::string> patterns;
  for (const auto& rule : policy.modules.rules()) {
    patterns.push_back(rule.pattern);
  }
  EXPECT_EQ(patterns, (std::vector<std::string>{"z", "a", "", "m"}));
}

TEST(PrecisionPolicyTest, FileMayStartFromAPresetWherever) {
  auto expected = PrecisionPolicy::preset("nlp");
  expected.ops.set("exp", OpRule::float32);
  EXPECT_EQ(parse("ops.rules.exp = \"float32\"\npreset = \"nlp\"\n"), expected);
}

TEST(PrecisionPolicyTest, EveryPresetSurvivesTheFile) {
  for (const auto& name : PrecisionPolicy::preset_names()) {
    const auto policy = PrecisionPolicy::preset(name);
    EXPECT_EQ(parse(to_toml(policy)), policy) << name;
  }
}

TEST(PrecisionPolicyTest, RepeatedNamesAndOddTextsSurviveTheFile) {
  PrecisionPolicy policy;
  policy.ops.set("mm", OpRule::float32, "a \"quoted\" \\ reason\n", at::kCPU)
      .set("exp", OpRule::promote, std::string("bell \x07, ö, \x7f"))
      .set("mm", OpRule::inputs, "", at::kCUDA)
      .set("binary_cross_entropy", OpRule::refuse);
  policy.modules.set("a b.\"c\"", at::kHalf)
      .set("", at::kFloat, "everything")
      .set("a b.\"c\"", at::kBFloat16);
  const auto text = to_toml(policy);
  EXPECT_THAT(text, testing::HasSubstr("[[ops.rules]]\nop = \"mm\""));
  EXPECT_EQ(parse(text), policy) << text;
  EXPECT_EQ(to_toml(parse(text)), text);
}

TEST(PrecisionPolicyTest, SavedFileIsReadBack) {
  const io::TemporaryFolder folder;
  const auto path = folder.path() + "/policy.toml";
  const auto policy = PrecisionPolicy::preset("speech");
  save_precision_policy(path, policy);
  save_precision_policy(path, policy); // replaces
  EXPECT_EQ(load_precision_policy(path), policy);
  size_t files = 0;
  for ([[maybe_unused]] const auto& file :
       std::filesystem::directory_iterator(folder.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1U);
  EXPECT_ERROR(
      save_precision_policy(folder.path() + "/none/p.toml", policy),
      CheckpointError,
      "none/p.toml");
  EXPECT_ERROR(
      load_precision_policy(folder.path() + "/none.toml"),
      c10::ValueError,
      "none.toml: cannot be read");
}

TEST(PrecisionPolicyTest, MistakesNameFileLineKeyAndTheNearestName) {
  const auto expect = [](const std::string& toml,
                         const std::string& what,
                         const std::string& more = "") {
    EXPECT_ERROR(parse(toml), c10::ValueError, what, more);
  };
  expect("\n[op]\n", "p.toml:2: op: unknown key, did you mean 'ops'?");
  expect("[ops]\nbsae = 1", "p.toml:2: ops.bsae: unknown key", "'base'");
  expect("[ops]\nbase = \"lax\"", "p.toml:2: ops.base: expected one of ");
  expect("[ops]\nbase = 3", "found 3");
  expect("ops = 1", "p.toml:1: ops: expected a table, found 1");
  expect(
      "[ops.rules]\nsofmax = \"float32\"",
      "p.toml:2: ops.rules.sofmax: LibTorch has no op 'sofmax'",
      "did you mean 'softmax'?");
  expect("[ops.rules]\nexp_ = \"float32\"", "p.toml:2: ops.rules.exp_: op");
  expect(
      "[ops.rules]\nmm = \"float23\"",
      "p.toml:2: ops.rules.mm: expected one of inputs, lower-precision, "
      "float32, promote, refuse, found 'float23'",
      "did you mean 'float32'?");
  expect("[ops.rules]\nmm = { reason = \"x\" }", "ops.rules.mm: has no rule");
  expect(
      "[ops.rules]\nmm = { rule = \"float32\", device = \"tpu\" }",
      "p.toml:2: ops.rules.mm.device: expected one of cpu, cuda, found 'tpu'");
  expect(
      "[ops.rules]\nmm = { rule = \"float32\", reasn = \"x\" }",
      "ops.rules.mm.reasn: unknown key, did you mean 'reason'?");
  expect(
      "[ops.rules]\nsoftmax.int = \"float32\"",
      "ops.rules.softmax.int: unknown key",
      "needs quotes: \"softmax.int\"");
  expect("[[ops.rules]]\nrule = \"float32\"", "ops.rules: a rule has no op");
  expect("[modules]\nrule = 1", "modules.rule: unknown key", "'rules'");
  expect(
      "[modules.rules]\nhead = \"float64\"",
      "expected one of float32, float16, bfloat16, found 'float64'");
  expect(
      "[modules.rules]\n\"a..b\" = \"float32\"",
      "p.toml:2: modules.rules.a..b: a name is empty");
  expect(
      "[modules.rules]\nhead = { dtype = \"float32\", optional = \"yes\" }",
      "modules.rules.head.optional: expected true or false, found 'yes'");
  expect("preset = \"npl\"", "p.toml:1: preset: expected one of", "'nlp'");
  expect(
      "preset = \"nlp\"\n[ops]\nbase = \"strict\"",
      "p.toml:3: ops.base: a preset has its own");
  expect("[ops\n", "p.toml:1: not TOML: ");
}

TEST(PrecisionPolicyTest, EveryLineOfATaskPresetHasAReason) {
  for (const char* name : {"cv", "nlp", "speech"}) {
    const auto policy = PrecisionPolicy::preset(name);
    EXPECT_FALSE(policy.ops.edits().empty());
    for (const auto& edit : policy.ops.edits()) {
      EXPECT_GT(edit.reason.size(), 20U) << name << " " << edit.op;
    }
    for (const auto& rule : policy.modules.rules()) {
      EXPECT_GT(rule.reason.size(), 20U) << name << " " << rule.pattern;
    }
  }
  EXPECT_ERROR(
      PrecisionPolicy::preset("speach"),
      c10::ValueError,
      "unknown policy 'speach', did you mean 'speech'?",
      "pytorch, strict, cv, nlp, speech");
}

TEST(PrecisionPolicyTest, TaskPresetsRunWhatTheyNameInFloat32) {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    for (const char* name : {"cv", "nlp", "speech"}) {
      const auto ops = PrecisionPolicy::preset(name).ops;
      for (const char* norm :
           {"batch_norm", "layer_norm", "group_norm", "rms_norm"}) {
        EXPECT_EQ(ops.rule(norm, device), OpRule::float32) << name << norm;
      }
      EXPECT_EQ(ops.rule("mm", device), OpRule::lower_precision);
    }
    const auto speech = PrecisionPolicy::preset("speech").ops;
    for (const char* op : {"softmax.int", "ctc_loss.Tensor", "sum", "mean"}) {
      EXPECT_EQ(speech.rule(op, device), OpRule::float32) << op;
    }
  }
  const auto cv = PrecisionPolicy::preset("cv").ops;
  EXPECT_EQ(cv.rule("softmax.int", at::kCPU), OpRule::inputs);
}

struct PolicyBlock : nn::Module {
  PolicyBlock() {
    mlp = register_module("mlp", nn::Sequential());
    mlp->push_back("c_fc", nn::Linear(8, 16));
    mlp->push_back("c_proj", nn::Linear(16, 8));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  }
  at::Tensor forward(const at::Tensor& x) {
    hidden = mlp[0]->as<nn::Linear>()->forward(x);
    out = mlp[1]->as<nn::Linear>()->forward(hidden);
    return norm->forward(out.to(at::kBFloat16));
  }
  nn::Sequential mlp{nullptr};
  nn::LayerNorm norm{nullptr};
  at::Tensor hidden;
  at::Tensor out;
};

TEST(PrecisionPolicyTest, NlpFindsTheFeedForwardOutputAndSaysWhichLineDid) {
  PolicyBlock block;
  const auto policy = PrecisionPolicy::preset("nlp");
  const auto options = policy.bind(block);
  const Autocast autocast(torch::kCPU, torch::kBFloat16, options);
  const auto y = block.forward(torch::randn({2, 8}));
  EXPECT_EQ(block.hidden.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(block.out.scalar_type(), torch::kFloat);
  EXPECT_EQ(y.scalar_type(), torch::kFloat);

  ASSERT_TRUE(options.modules.has_value());
  for (const auto& use : policy.modules.uses(*options.modules)) {
    EXPECT_EQ(use.modules, use.rule.pattern == "**.mlp.c_proj" ? 1 : 0)
        << use.rule.pattern;
  }
}

TEST(PrecisionPolicyTest, OnlyOptionalPatternsMayMatchNothing) {
  PolicyBlock block;
  PrecisionPolicy policy;
  policy.modules.set({.pattern = "decoder", .optional = true});
  EXPECT_NO_THROW(policy.bind(block));
  policy.modules.set("decoder", at::kFloat);
  EXPECT_ERROR(
      policy.bind(block), c10::ValueError, "'decoder' matches no module");
}

TEST(PrecisionPolicyTest, RuleThatALaterOneOverridesIsNotInUse) {
  PolicyBlock block;
  ModulePolicy policy;
  policy.set("mlp", at::kFloat).set("", at::kHalf).set("norm", at::kFloat);
  const auto uses = policy.uses(policy.bind(block));
  EXPECT_EQ(uses.at(0).modules, 0);
  EXPECT_EQ(uses.at(1).modules, 2);
  EXPECT_EQ(uses.at(2).modules, 1);
}

} // namespace
} // namespace ampkit
