// AdamW and SGD (command "optimizer"), clipping ("clip") and averaging ("ema")
// on the settings and numbers of test_optimizers.py.

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/clip.h>
#include <ampkit/optim/ema.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

at::ScalarType dtype_of(const std::string& name) {
  return name == "float16"    ? at::kHalf
         : name == "bfloat16" ? at::kBFloat16
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

optim::Kernel kernel_of(const json& task) {
  return task["kernel"] == "stock" ? optim::Kernel::stock
                                   : optim::Kernel::highway;
}

optim::AdamWOptions adamw_options(const json& o, optim::Kernel kernel) {
  return {
      .lr = o["lr"],
      .betas = {o["betas"][0], o["betas"][1]},
      .eps = o["eps"],
      .weight_decay = o["weight_decay"],
      .kernel = kernel};
}

optim::SGDOptions sgd_options(const json& o, optim::Kernel kernel) {
  return {
      .lr = o["lr"],
      .momentum = o["momentum"],
      .dampening = o["dampening"],
      .weight_decay = o["weight_decay"],
      .nesterov = o["nesterov"],
      .kernel = kernel};
}

std::vector<at::Tensor> parameters_of(const json& group, at::ScalarType type) {
  std::vector<at::Tensor> parameters;
  for (const json& parameter : group["params"]) {
    parameters.push_back(to_tensor(parameter, type).requires_grad_());
  }
  return parameters;
}

std::unique_ptr<optim::FusedOptimizer> make_optimizer(
    const json& task, at::ScalarType type) {
  std::vector<optim::ParamGroup<optim::AdamWOptions>> adamw;
  std::vector<optim::ParamGroup<optim::SGDOptions>> sgd;
  for (const json& group : task["groups"]) {
    const auto parameters = parameters_of(group, type);
    if (task["kind"] == "AdamW") {
      adamw.push_back(
          {parameters, adamw_options(group["options"], kernel_of(task))});
    } else {
      sgd.push_back(
          {parameters, sgd_options(group["options"], kernel_of(task))});
    }
  }
  if (task["kind"] == "AdamW") {
    return std::make_unique<optim::AdamW>(std::move(adamw));
  }
  return std::make_unique<optim::SGD>(std::move(sgd));
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

/// ARGUMENTS: task.json result.json. The result has the weights after each
/// step, and the masters at the end.
void run_optimizer(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  const auto type = dtype_of(task["dtype"]);
  const auto optimizer = make_optimizer(task, type);
  const auto parameters = all_parameters(*optimizer);
  json result{{"weights", json::array()}, {"masters", json::array()}};
  for (const json& step : task["steps"]) {
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

void run_clip(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  std::vector<at::Tensor> parameters;
  for (const json& grad : task["grads"]) {
    const auto values = to_tensor(grad, dtype_of(task["dtype"]));
    parameters.push_back(torch::zeros_like(values).requires_grad_());
    parameters.back().mutable_grad() = values;
  }
  json result;
  if (task.contains("clip_value")) {
    optim::clip_grad_value_(parameters, task["clip_value"]);
  } else {
    const double type = task["norm_type"].is_string()
                            ? std::numeric_limits<double>::infinity()
                            : task["norm_type"].get<double>();
    result["norm"] = optim::clip_grad_norm_(
                         parameters, task["max_norm"], {.norm_type = type})
                         .item<double>();
  }
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
