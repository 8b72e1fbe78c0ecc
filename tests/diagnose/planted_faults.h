#pragma once

#include <string>
#include <vector>

#include "diagnose/trial.h"
#include "support/float_limits.h"

namespace ampkit::diagnose {

/// What a watch has to say of a fault.
struct Expected {
  Verdict verdict;
  /// Base name of op or forward op, or several, with | between; empty: any.
  std::string op;
  std::string place; ///< module, module before, or tensor
};

using Run = std::function<std::optional<Finding>()>;

/// A run with a fault in it.
struct PlantedFault {
  std::string name;
  Expected expected;
  Run run;
  bool dtype_in_code = false; ///< no autocast region decides
};

/// A run without one.
struct HealthyRun {
  std::string name;
  std::function<std::optional<Finding>()> run;
};

std::vector<PlantedFault> every_fault();
std::vector<HealthyRun> healthy_runs();

inline Trial conv_trial(
    const std::shared_ptr<SmallConvNet>& net, at::ScalarType dtype) {
  const auto labels = torch::randint(0, 4, {6}, at::kLong);
  return {
      .dtype = dtype,
      .input = torch::randn({6, 1, 8, 8}),
      .loss = [net, labels](const at::Tensor& x) {
        return torch::cross_entropy_loss(net->forward(x), labels);
      }};
}

inline Trial text_trial(
    const std::shared_ptr<SmallTransformer>& net, at::ScalarType dtype) {
  const auto labels = torch::randint(0, 32, {4 * 6}, at::kLong);
  return {
      .dtype = dtype,
      .input = torch::randint(0, 32, {4, 6}, at::kLong),
      .loss = [net, labels](const at::Tensor& x) {
        return torch::cross_entropy_loss(
            net->forward(x).reshape({-1, 32}), labels);
      }};
}

using ConvFault = std::function<void(SmallConvNet&, Trial&)>;
using TextFault = std::function<void(SmallTransformer&, Trial&)>;

inline Run in_conv(const ConvFault& plant, at::ScalarType dtype = at::kFloat) {
  return [plant, dtype] {
    const auto net = std::make_shared<SmallConvNet>();
    auto trial = conv_trial(net, dtype);
    plant(*net, trial);
    return run_trial(*net, trial);
  };
}

inline Run in_text(const TextFault& plant, at::ScalarType dtype = at::kFloat) {
  return [plant, dtype] {
    const auto net = std::make_shared<SmallTransformer>();
    auto trial = text_trial(net, dtype);
    plant(*net, trial);
    return run_trial(*net, trial);
  };
}

inline Run features(const Tap& tap, at::ScalarType dtype = at::kFloat) {
  return in_conv(
      [tap](SmallConvNet& net, Trial&) { net.features = tap; }, dtype);
}

inline Run pooled(const Tap& tap, at::ScalarType dtype = at::kFloat) {
  return in_conv([tap](SmallConvNet& net, Trial&) { net.pooled = tap; }, dtype);
}

inline Run hidden(const Tap& tap, at::ScalarType dtype = at::kFloat) {
  return in_text(
      [tap](SmallTransformer& net, Trial&) { net.hidden = tap; }, dtype);
}

inline void set(const at::Tensor& parameter, double value) {
  const torch::NoGradGuard no_grad;
  parameter.view({-1})[1] = value;
}

inline void multiply(const at::Tensor& parameter, double factor) {
  const torch::NoGradGuard no_grad;
  parameter.mul_(factor);
}

// The loss times a factor, in float32.
inline void scale_loss(Trial& trial, double factor) {
  const auto loss = trial.loss;
  trial.loss = [loss, factor](const at::Tensor& x) {
    return loss(x).to(at::kFloat) * factor;
  };
}

} // namespace ampkit::diagnose
