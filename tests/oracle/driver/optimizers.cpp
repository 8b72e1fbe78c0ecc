// The optimizers (command "optimizer"), clipping ("clip") and averaging ("ema")
// on the settings and numbers of test_optimizers.py.

#include <ampkit/optim/clip.h>
#include <ampkit/optim/ema.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"
#include "oracle/driver/make_optimizer.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

at::ScalarType dtype_of(const std::string& name) {
  return name == "float16"    ? at::kHalf
         : name == "bfloat16" ? at::kBFloat16
         : name == "float64"  ? at::kDouble
                              : at::kFloat;
}

/// {"shape": [...], "values": [...]}; every fp32 number survives JSON.
at::Tensor to_tensor(const json& value, at::ScalarType type) {
  return torch::tensor(value["values"].get<std::vector<double>>(), at::kDouble)
      .to(type)
      .reshape(value["shape"].get<std::vector<int64_t>>());
}

json to_json(const at::Tensor& tensor) {
  const auto flat = tensor.detach().to(at::kDouble).flatten().contiguous();
  const auto* data = flat.const_data_ptr<double>();
  return std::vector<double>(data, data + flat.numel());
}

std::vector<std::vector<at::Tensor>> parameters_of(
    const json& task, at::ScalarType type) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const json& group : task["groups"]) {
    auto& parameters = groups.emplace_back();
    for (const json& parameter : group["params"]) {
      parameters.push_back(to_tensor(parameter, type).requires_grad_());
    }
  }
  return groups;
}

std::vector<at::Tensor> all_parameters(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

void set_gradients(
    const std::vector<at::Tensor>& parameters,
    const json& grads,
    at::ScalarType type) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() =
        grads[i].is_null() ? at::Tensor() : to_tensor(grads[i], type);
  }
}

void take_step(
    optim::FusedOptimizer& optimizer,
    const std::vector<at::Tensor>& parameters,
    const json& step) {
  for (size_t g = 0; g < step["lrs"].size(); ++g) {
    optimizer.param_groups()[g].options().set_lr(step["lrs"][g]);
  }
  if (step.contains("max_norm")) {
    optim::clip_grad_norm_(parameters, step["max_norm"]);
  }
  if (step.contains("divisor")) {
    optimizer.fused_step(
        {.grad_divisor = at::full({}, step["divisor"].get<double>()),
         .found_inf = at::full({}, step["found_inf"].get<double>())});
  } else {
    optimizer.step();
  }
}

/// The run goes on with a new optimizer over copies of the parameters.
void change_over(
    std::unique_ptr<optim::FusedOptimizer>& optimizer,
    std::vector<at::Tensor>& parameters,
    const json& task) {
  std::vector<std::vector<at::Tensor>> groups;
  for (auto& group : optimizer->param_groups()) {
    auto& copies = groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      copies.push_back(parameter.detach().clone().requires_grad_());
    }
  }
  auto fresh = make_optimizer(task, groups);
  fresh->load_state_dict(optimizer->state_dict());
  optimizer = std::move(fresh);
  parameters = all_parameters(*optimizer);
}

/// ARGUMENTS: task.json result.json. The result has the weights after each
/// step, and the masters at the end. After step "restore_after" the state goes
/// through a new optimizer.
void run_optimizer(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  const auto type = dtype_of(task["dtype"]);
  auto optimizer = make_optimizer(task, parameters_of(task, type));
  auto parameters = all_parameters(*optimizer);
  json result{{"weights", json::array()}, {"masters", json::array()}};
  for (const json& step : task["steps"]) {
    if (task.value("restore_after", -1) ==
        static_cast<int>(result["weights"].size())) {
      change_over(optimizer, parameters, task);
    }
    set_gradients(parameters, step["grads"], type);
    take_step(*optimizer, parameters, step);
    json weights = json::array();
    for (const at::Tensor& parameter : parameters) {
      weights.push_back(to_json(parameter));
    }
    result["weights"].push_back(weights);
  }
  for (const at::Tensor& parameter : parameters) {
    result["masters"].push_back(to_json(optimizer->master(parameter)));
  }
  write_json(args[1], result);
}

/// A limit "kind" of "norm", "value" or "adaptive".
json clip(const std::vector<at::Tensor>& parameters, const json& task) {
  json result;
  if (task["kind"] == "value") {
    optim::clip_grad_value_(parameters, task["clip_value"]);
  } else if (task["kind"] == "adaptive") {
    optim::adaptive_clip_grad_(
        parameters, {.clip_factor = task["clip_factor"], .eps = task["eps"]});
  } else {
    const double type = task["norm_type"].is_string()
                            ? std::numeric_limits<double>::infinity()
                            : task["norm_type"].get<double>();
    result["norm"] = optim::clip_grad_norm_(
                         parameters, task["max_norm"], {.norm_type = type})
                         .item<double>();
  }
  return result;
}

void run_clip(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  const auto type = dtype_of(task["dtype"]);
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < task["grads"].size(); ++i) {
    const auto values = to_tensor(task["grads"][i], type);
    const auto weight = task.contains("weights")
                            ? to_tensor(task["weights"][i], type)
                            : torch::zeros_like(values);
    parameters.push_back(weight.requires_grad_());
    parameters.back().mutable_grad() = values;
  }
  json result = clip(parameters, task);
  for (const at::Tensor& parameter : parameters) {
    result["grads"].push_back(to_json(parameter.grad()));
  }
  write_json(args[1], result);
}

void run_ema(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  torch::nn::BatchNorm1d module(3);
  optim::ExponentialMovingAverage ema(
      *module, {.decay = task["decay"], .use_buffers = task["use_buffers"]});
  const at::NoGradGuard no_grad;
  for (const json& state : task["states"]) {
    module->weight.copy_(to_tensor(state["weight"], at::kFloat));
    module->bias.copy_(to_tensor(state["bias"], at::kFloat));
    module->running_mean.copy_(to_tensor(state["running_mean"], at::kFloat));
    module->num_batches_tracked.fill_(
        state["num_batches_tracked"].get<int64_t>());
    ema.update();
  }
  const auto averaged = ema.swap_in();
  write_json(
      args[1],
      {{"weight", to_json(module->weight)},
       {"bias", to_json(module->bias)},
       {"running_mean", to_json(module->running_mean)},
       {"num_batches_tracked", to_json(module->num_batches_tracked)}});
}

const Command kOptimizer{"optimizer", run_optimizer};
const Command kClip{"clip", run_clip};
const Command kEma{"ema", run_ema};

} // namespace
} // namespace ampkit::oracle
