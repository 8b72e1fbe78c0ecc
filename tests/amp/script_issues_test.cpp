// What Python's freeze, trace and quantization leave in a file is found in
// tests/oracle/test_script_module.py; here, graphs written by hand.
#include <ampkit/amp/script_issues.h>

#include <ampkit/amp/script_module.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

using torch::jit::Module;

/// A module with one weight, buffers, and this expression as its forward().
/// dtypes have no names there: 5 is fp16, 6 fp32, 7 fp64, 12 qint8, 15 bf16.
Module module_of(const std::string& expression) {
  Module module("__torch__.Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("w", torch::ones({4}).requires_grad_(), false);
  module.register_buffer("mean", torch::zeros({4}));
  module.register_buffer("var", torch::ones({4}));
  module.define("def forward(self, x):\n  return " + expression + "\n");
  return module;
}

std::vector<ScriptIssue> issues(const Module& module) {
  std::vector<ScriptIssue> result;
  for (const auto& finding : find_script_issues(module)) {
    result.push_back(finding.issue);
  }
  return result;
}

std::vector<ScriptIssue> issues(const std::string& expression) {
  return issues(module_of(expression));
}

using Issues = std::vector<ScriptIssue>;

TEST(ScriptIssuesTest, AnOrdinaryScriptHasNone) {
  EXPECT_EQ(issues("torch.dropout(x * self.w, 0.5, self.training)"), Issues{});
  EXPECT_EQ(
      issues("torch.batch_norm(x, self.w, None, self.mean, self.var, "
             "self.training, 0.1, 1e-5, False)"),
      Issues{});
  EXPECT_EQ(issues("(x * self.w).to(6)"), Issues{});
  EXPECT_EQ(issues("x * self.w + torch.ones([4])"), Issues{});
}

TEST(ScriptIssuesTest, AFixedModeIsFoundWhereItMatters) {
  const Issues fixed{ScriptIssue::fixed_mode};
  EXPECT_EQ(issues("torch.dropout(x * self.w, 0.5, False)"), fixed);
  EXPECT_EQ(issues("torch.dropout(x * self.w, 0.5, True)"), fixed);
  EXPECT_EQ(issues("torch.feature_dropout(x * self.w, 0.5, False)"), fixed);
  EXPECT_EQ(issues("torch.dropout(x * self.w, 0.0, False)"), Issues{});
  EXPECT_EQ(
      issues("torch.batch_norm(x, self.w, None, self.mean, self.var, False, "
             "0.1, 1e-5, False)"),
      fixed);
  EXPECT_EQ(
      issues("torch.batch_norm(x, self.w, None, None, None, True, 0.1, 1e-5, "
             "False)"),
      Issues{});
}

TEST(ScriptIssuesTest, CastsOfWeightsAndOfActivationsAreToldApart) {
  EXPECT_EQ(issues("x * self.w.to(15)"), Issues{ScriptIssue::cast_weights});
  EXPECT_EQ(issues("(x * self.w).to(5)"), Issues{ScriptIssue::constant_dtype});
  EXPECT_EQ(issues("(x * self.w).to(7)"), Issues{ScriptIssue::constant_dtype});
}

TEST(ScriptIssuesTest, ModulesWithNothingToTrainAreFound) {
  Module empty("__torch__.Empty");
  empty.define("def forward(self, x):\n  return x + 1\n");
  EXPECT_EQ(issues(empty), Issues{ScriptIssue::no_parameters});
  auto fixed = module_of("x * self.w");
  fixed.attr("w").toTensor().requires_grad_(false);
  EXPECT_EQ(issues(fixed), Issues{ScriptIssue::no_gradients});
}

TEST(ScriptIssuesTest, OpsWithoutGradientAreFound) {
  EXPECT_EQ(
      issues("torch.quantize_per_tensor(x * self.w, 0.1, 0, "
             "12).dequantize()"),
      Issues{ScriptIssue::inference_only});
}

TEST(ScriptIssuesTest, EveryMethodIsLookedAtWithWhatItCalls) {
  auto module = module_of("x * self.w");
  module.define(
      "def helper(self, x):\n  return torch.dropout(x, 0.5, False)\n");
  module.define("def other(self, x):\n  return self.helper(x)\n");
  const auto findings = find_script_issues(module);
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].issue, ScriptIssue::fixed_mode);
  EXPECT_FALSE(findings[0].refused);
  EXPECT_THAT(
      findings[0].message,
      ::testing::AllOf(
          ::testing::HasSubstr("train() and eval() have no effect"),
          ::testing::HasSubstr("(aten::dropout"),
          ::testing::HasSubstr("use torch.jit.script()")));
}

TEST(ScriptIssuesTest, ManyPlacesAreCounted) {
  const auto findings = find_script_issues(
      module_of("x.half() + x.half() + x.half() + x.half() + self.w"));
  ASSERT_EQ(findings.size(), 1);
  EXPECT_THAT(findings[0].message, ::testing::HasSubstr(", and 1 more)"));
}

TEST(ScriptIssuesTest, RefusedOnesAreErrorsThatListAll) {
  auto module = module_of("x * self.w.to(15)");
  module.attr("w").toTensor().requires_grad_(false);
  EXPECT_ERROR(
      ScriptModule{module},
      c10::Error,
      "ScriptModule: Net would not train as it does in Python:",
      "\n  no_gradients: no parameter requires a gradient",
      "\n  cast_weights: weights are cast to 16 bits inside the graph");
}

/// Collects warnings.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    messages.push_back(warning.msg());
  }
  std::vector<std::string> messages;
};

TEST(ScriptIssuesTest, OthersAreWarningsUnlessAcceptedOrStrict) {
  const auto module = module_of("torch.dropout(x * self.w, 0.5, False)");
  Warnings warnings;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    EXPECT_EQ(ScriptModule(module).findings().size(), 1);
    EXPECT_EQ(warnings.messages.size(), 1);
    const ScriptModule accepted(
        module, {.accept = {ScriptIssue::fixed_mode}, .strict = true});
    EXPECT_EQ(accepted.findings().size(), 1);
  }
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_THAT(
      warnings.messages[0],
      ::testing::StartsWith("ScriptModule: Net: fixed_mode: "));
  EXPECT_ERROR(
      ScriptModule(module, {.strict = true}), c10::Error, "fixed_mode: ");
}

TEST(ScriptIssuesTest, WhatIsAcceptedIsNotRefused) {
  const auto module = module_of("x * self.w.to(15)");
  ScriptModule accepted(module, {.accept = {ScriptIssue::cast_weights}});
  EXPECT_EQ(accepted.findings().size(), 1);
  EXPECT_EQ(
      accepted.forward(torch::ones({4}, torch::kBFloat16)).scalar_type(),
      torch::kBFloat16);
}

TEST(ScriptIssuesTest, EachHasAName) {
  EXPECT_EQ(to_string(ScriptIssue::no_parameters), "no_parameters");
  EXPECT_EQ(to_string(ScriptIssue::constant_dtype), "constant_dtype");
}

} // namespace
} // namespace ampkit
