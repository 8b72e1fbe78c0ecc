#include "kernels/cpu_16bit.h"

#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include "kernels/cpu_16bit_ops.h"
#include "kernels/cpu_16bit_support.h"
#include "kernels/cpu_features.h"
#include "support/errors.h"

namespace ampkit::kernels {
namespace {

using torch::Tensor;

/// Whether our kernel stands at the CPU key: the stock one of this op is a
/// composite and has none there.
bool has_cpu_convolution() {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("aten::_convolution", "")
      .hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

/// Results of every overridden family in a dtype that is none of our business.
std::vector<Tensor> results_in(c10::ScalarType dtype) {
  torch::manual_seed(3);
  const auto random = [&](at::IntArrayRef sizes) {
    return (torch::randn(sizes) * 8).to(dtype);
  };
  const auto a = random({12, 20});
  const auto b = random({20, 9});
  std::vector<Tensor> results{
      torch::mm(a, b),
      torch::addmm(random({9}), a, b),
      torch::bmm(random({3, 5, 4}), random({3, 4, 6})),
      torch::mv(a, random({20})),
      torch::dot(random({20}), random({20})),
      torch::conv2d(random({2, 3, 8, 8}), random({4, 3, 3, 3}))};
  if (c10::isFloatingType(dtype)) {
    const auto q = random({2, 2, 8, 4});
    results.push_back(torch::scaled_dot_product_attention(q, q, q));
  }
  return results;
}

/// An environment variable for the processes that a test starts.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    setenv(name, value, 1);
  }
  ~Variable() {
    if (before_.has_value()) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// Each test runs in a process of its own, because installing can't be undone.
/// Tells what failed through the exit status: 0 is success.
class Cpu16BitProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); // fork and exec
  }
};

#define EXPECT_IN_OWN_PROCESS(condition) \
  EXPECT_EXIT(std::_Exit((condition) ? 0 : 1), ::testing::ExitedWithCode(0), "")

bool runs_through_fp32(c10::ScalarType dtype) {
  return cpu_16bit_route(dtype) == Cpu16BitRoute::through_fp32;
}

bool nothing_changes_before_install() {
  torch::mm(torch::ones({4, 4}), torch::ones({4, 4}));
  const bool query_is_passive =
      runs_through_fp32(c10::kHalf) || !cpu_16bit_reason(c10::kHalf).empty();
  return query_is_passive && !cpu_16bit_installed() && !has_cpu_convolution();
}

TEST_F(Cpu16BitProcessTest, ProcessThatNeverInstallsKeepsStockKernels) {
  EXPECT_IN_OWN_PROCESS(nothing_changes_before_install());
}

bool other_dtypes_are_unchanged() {
  const std::vector<c10::ScalarType> dtypes{
      c10::kFloat, c10::kDouble, c10::kComplexFloat};
  std::vector<std::vector<Tensor>> before;
  for (const auto dtype : dtypes) {
    before.push_back(results_in(dtype));
  }
  const auto integers =
      torch::mm(torch::arange(12).view({3, 4}), torch::arange(12).view({4, 3}));
  set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
  bool equal = has_cpu_convolution() && integers.equal(torch::mm(
                                            torch::arange(12).view({3, 4}),
                                            torch::arange(12).view({4, 3})));
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const auto after = results_in(dtypes[i]);
    for (size_t op = 0; op < after.size(); ++op) {
      equal = equal && after[op].equal(before[i][op]);
    }
  }
  return equal;
}

TEST_F(Cpu16BitProcessTest, OtherDtypesAreBitEqualAfterInstalling) {
  EXPECT_IN_OWN_PROCESS(other_dtypes_are_unchanged());
}

bool native_is_stock() {
  const auto before = results_in(c10::kBFloat16);
  set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
  set_cpu_16bit_mode(Cpu16BitMode::native);
  const auto after = results_in(c10::kBFloat16);
  bool equal = cpu_16bit_installed();
  for (size_t op = 0; op < after.size(); ++op) {
    equal = equal && after[op].equal(before[op]);
  }
  return equal;
}

TEST_F(Cpu16BitProcessTest, SwitchedBackToNativeIsBitEqualToStock) {
  EXPECT_IN_OWN_PROCESS(native_is_stock());
}

TEST_F(Cpu16BitProcessTest, EnvironmentSaysThroughFp32) {
  const Variable variable("AMPKIT_CPU_16BIT", "fp32");
  EXPECT_IN_OWN_PROCESS(
      (install_cpu_16bit(), has_cpu_convolution()) &&
      cpu_16bit_mode() == Cpu16BitMode::through_fp32 &&
      runs_through_fp32(c10::kHalf) && runs_through_fp32(c10::kBFloat16) &&
      !runs_through_fp32(c10::kFloat) && !runs_through_fp32(c10::kDouble));
}

TEST_F(Cpu16BitProcessTest, EnvironmentSaysNative) {
  const Variable variable("AMPKIT_CPU_16BIT", "native");
  EXPECT_IN_OWN_PROCESS(
      (install_cpu_16bit(), !has_cpu_convolution()) &&
      !runs_through_fp32(c10::kHalf) && !runs_through_fp32(c10::kBFloat16));
}

bool wrong_environment_throws_each_time() {
  for (int i = 0; i < 2; ++i) {
    const auto text = error_of([] { install_cpu_16bit(); });
    if (text.find("auto, native or fp32, got 'fast'") == std::string::npos) {
      return false;
    }
  }
  return !has_cpu_convolution();
}

TEST_F(Cpu16BitProcessTest, WrongEnvironmentIsAnErrorThatListsTheChoices) {
  const Variable variable("AMPKIT_CPU_16BIT", "fast");
  EXPECT_IN_OWN_PROCESS(wrong_environment_throws_each_time());
}

TEST_F(Cpu16BitProcessTest, AProcessHeldToAvx2RunsBothDtypesThroughFp32) {
  const Variable variable("ONEDNN_MAX_CPU_ISA", "AVX2");
  EXPECT_IN_OWN_PROCESS(
      (install_cpu_16bit(), has_cpu_convolution()) &&
      runs_through_fp32(c10::kHalf) && runs_through_fp32(c10::kBFloat16));
}

bool threads_install_once() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [] { set_cpu_16bit_mode(Cpu16BitMode::through_fp32); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return cpu_16bit_installed() && has_cpu_convolution();
}

TEST_F(Cpu16BitProcessTest, ManyThreadsMayInstallAtOnce) {
  EXPECT_IN_OWN_PROCESS(threads_install_once());
}

/// Counts what it is told.
struct CountingHandler : c10::WarningHandler {
  int count = 0;
  void process(const c10::Warning&) override { ++count; }
};

/// Installing is silent, and does not use up the dispatcher's one warning.
bool only_somebody_elses_override_warns() {
  CountingHandler handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
  const bool silent = handler.count == 0;
  torch::Library library(
      torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("relu", [](const Tensor& self) { return self.clone(); });
  return silent && handler.count == 1;
}

TEST_F(Cpu16BitProcessTest, InstallingIsSilentAndLaterOverridesStillWarn) {
  EXPECT_IN_OWN_PROCESS(only_somebody_elses_override_warns());
}

class Cpu16BitCoverageTest : public Cpu16BitTest {
 protected:
  /// Names of the ops that saw an input of the test's dtype during `step`.
  std::set<std::string> ops_in_16bit(const std::function<void()>& step) {
    static thread_local std::set<std::string> names;
    static thread_local c10::ScalarType wanted;
    names.clear();
    wanted = GetParam();
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& fn)
                -> std::unique_ptr<at::ObserverContext> {
              for (const auto& input : fn.inputs()) {
                if (input.isTensor() && input.toTensor().defined() &&
                    input.toTensor().scalar_type() == wanted) {
                  names.insert(fn.name());
                }
              }
              return nullptr;
            })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
    step();
    at::removeCallback(handle);
    return names;
  }
};

void backward_if_recorded(const Tensor& output) {
  if (output.requires_grad()) {
    output.sum().backward();
  }
}

/// A [sizes] input through the module, and back if gradients are recorded.
template <typename Module>
void run_layer(Module module, c10::ScalarType dtype, at::IntArrayRef sizes) {
  module->to(dtype);
  const auto output = module(torch::randn(sizes).to(dtype));
  if constexpr (std::is_same_v<std::decay_t<decltype(output)>, Tensor>) {
    backward_if_recorded(output);
  } else {
    backward_if_recorded(std::get<0>(output));
  }
}

/// What people build networks from.
void run_many_layers(c10::ScalarType dtype) {
  namespace nn = torch::nn;
  run_layer(nn::Linear(8, 4), dtype, {8});
  run_layer(nn::Linear(8, 4), dtype, {3, 8});
  run_layer(nn::Linear(8, 4), dtype, {2, 3, 8});
  run_layer(
      nn::Linear(nn::LinearOptions(8, 4).bias(false)), dtype, {2, 2, 3, 8});
  run_layer(nn::Conv1d(4, 4, 3), dtype, {2, 4, 9});
  run_layer(nn::Conv2d(4, 4, 3), dtype, {2, 4, 9, 9});
  run_layer(
      nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(4)), dtype, {2, 4, 9, 9});
  run_layer(nn::Conv3d(4, 4, 3), dtype, {2, 4, 5, 5, 5});
  run_layer(nn::ConvTranspose2d(4, 4, 3), dtype, {2, 4, 5, 5});
  run_layer(nn::GRU(4, 4), dtype, {5, 2, 4});
}

/// And the functions that they build the rest from.
void run_many_functions(c10::ScalarType dtype) {
  const auto ones = [&](at::IntArrayRef sizes) {
    return torch::ones(sizes, torch::dtype(dtype));
  };
  const auto x = torch::randn({2, 6, 8}).to(dtype).requires_grad_();
  const auto q = x.view({2, 6, 2, 4}).transpose(1, 2);
  torch::nn::MultiheadAttention attention(8, 2);
  attention->to(dtype);
  for (const auto& output :
       {torch::einsum("btc,bsc->bts", {x, x}),
        torch::einsum("btc,bsd,cd->ts", {x, x, ones({8, 8})}),
        torch::bilinear(x, x, ones({3, 8, 8})),
        std::get<0>(attention(x, x, x)),
        torch::scaled_dot_product_attention(q, q, q, {}, 0.0, true),
        torch::scaled_dot_product_attention(q, q, q, {}, 0.5, true)}) {
    backward_if_recorded(output);
  }
}

/// None of the kernels that ours stand in front of.
void expect_no_stock_product(const std::set<std::string>& names) {
  for (const auto& name : names) {
    for (const char* kernel : {"mkldnn", "slow_conv", "thnn", "mkl_linear"}) {
      EXPECT_EQ(name.find(kernel), std::string::npos) << name;
    }
  }
}

TEST_P(Cpu16BitCoverageTest, NoStockProductRunsInTraining) {
  const auto names = ops_in_16bit([&] {
    run_many_layers(GetParam());
    run_many_functions(GetParam());
  });
  for (const char* name :
       {"aten::mm",
        "aten::bmm",
        "aten::addmm",
        "aten::_convolution",
        "aten::convolution_backward",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  expect_no_stock_product(names);
}

TEST_P(Cpu16BitCoverageTest, NoStockProductRunsInInference) {
  const c10::InferenceMode inference;
  const auto names = ops_in_16bit([&] {
    run_many_layers(GetParam());
    run_many_functions(GetParam());
  });
  EXPECT_TRUE(names.contains("aten::addmm"));
  EXPECT_TRUE(names.contains("aten::_convolution"));
  expect_no_stock_product(names);
}

INSTANTIATE_FOR_16BIT(Cpu16BitCoverageTest);

TEST(Cpu16BitModeTest, UnitsAreUsedForAllButSmallWork) {
  const auto tensor = torch::ones({4, 4}, torch::kBFloat16);
  const auto through = [&](bool is_small) {
    return dtype_through_fp32(tensor, {&tensor}, is_small).has_value();
  };
  set_cpu_16bit_mode(Cpu16BitMode::automatic);
  EXPECT_TRUE(through(true));
  EXPECT_EQ(through(false), !cpu_features().bf16_matmul);
  set_cpu_16bit_mode(Cpu16BitMode::native);
  EXPECT_FALSE(through(true));
  set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
  EXPECT_TRUE(through(false));
  const auto fp32 = torch::ones({4});
  EXPECT_FALSE(dtype_through_fp32(tensor, {&fp32}, true).has_value());
  EXPECT_FALSE(dtype_through_fp32(fp32, {&fp32}, true).has_value());
  set_cpu_16bit_mode(Cpu16BitMode::automatic);
}

TEST(Cpu16BitModeTest, SwitchingTakesEffectFromTheNextOp) {
  torch::manual_seed(5);
  const auto a = torch::randn({64, 512}).to(c10::kHalf);
  const auto expected =
      torch::mm(a.to(c10::kFloat), a.t().to(c10::kFloat)).to(c10::kHalf);
  for (int i = 0; i < 2; ++i) {
    set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
    EXPECT_TRUE(torch::mm(a, a.t()).equal(expected));
    set_cpu_16bit_mode(Cpu16BitMode::native);
    EXPECT_FALSE(runs_through_fp32(c10::kHalf));
  }
  set_cpu_16bit_mode(Cpu16BitMode::automatic);
}

} // namespace
} // namespace ampkit::kernels
