#include <ampkit/amp/script_module.h>

#include <csignal>
#include <filesystem>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/ema.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// train() of test_script_module.py with a module of torch.jit.save().
class ScriptTraining {
 public:
  ScriptTraining(const std::string& script, const Precision& precision)
      : precision_(precision),
        model_(load_script_module(script)),
        optimizer_(
            model_->parameters(), {.lr = 1e-2, .kernel = optim::Kernel::stock}),
        scaler_(precision, {.init_scale = 0x1p10, .growth_interval = 2}),
        average_(*model_, {.decay = 0.5}) {
    model_->train();
  }

  torch::Tensor step(const torch::Tensor& x, const torch::Tensor& y) {
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, precision_);
      loss = at::cross_entropy_loss(model_->forward(x), y);
    }
    scaler_.scale(loss).backward();
    scaler_.step(optimizer_);
    scaler_.update();
    optimizer_.zero_grad();
    average_.update();
    return loss.detach();
  }

  // In FP32, in evaluation mode, with the averages.
  torch::Tensor evaluate(const torch::Tensor& x) {
    const torch::NoGradGuard no_grad;
    const auto averages = average_.swap_in();
    model_->eval();
    const auto result = model_->forward(x);
    model_->train();
    return result;
  }

  io::StateDict state() const {
    io::StateDict state;
    state.set_all("model", io::module_state(*model_));
    state.set_all("optimizer", optimizer_.state_dict());
    state.set_all("scaler", scaler_.state_dict());
    state.set_all("average", average_.state_dict());
    return state;
  }

  void load(const io::StateDict& state) {
    io::load_module_state(*model_, state.subset("model"));
    optimizer_.load_state_dict(state.subset("optimizer"));
    scaler_.load_state_dict(state.subset("scaler"));
    average_.load_state_dict(state.subset("average"));
  }

  const ScriptModule& model() const { return *model_; }

 private:
  Precision precision_;
  std::shared_ptr<ScriptModule> model_;
  optim::AdamW optimizer_;
  GradScaler scaler_;
  optim::ExponentialMovingAverage average_;
};

void write_result(
    const std::string& path,
    const ScriptTraining& training,
    const std::vector<torch::Tensor>& losses,
    const torch::Tensor& evaluation) {
  io::NamedTensors result{
      {"losses", torch::stack(losses)}, {"evaluation", evaluation}};
  const auto state = io::module_state(training.model());
  for (const auto& [name, value] : state.entries()) {
    result.emplace_back("model." + name, std::get<at::Tensor>(value));
  }
  io::save_safetensors(path, result);
}

// script_train SCRIPT PRECISION BATCHES OUTPUT CHECKPOINT KILL_AFTER: goes on
// from CHECKPOINT if there is one; writes it after KILL_AFTER steps (0: never)
// and kills itself.
void train_script_module(std::span<const std::string> args) {
  TORCH_CHECK(
      args.size() == 6,
      "usage: script_train SCRIPT PRECISION BATCHES OUTPUT CHECKPOINT "
      "KILL_AFTER");
  const io::SafetensorsReader batches(args[2]);
  const auto x = batches.copy("x");
  const auto y = batches.copy("y");
  ScriptTraining training(args[0], Precision::parse(args[1]));
  int64_t step = 0;
  if (std::filesystem::exists(args[4])) {
    const auto state = io::load_checkpoint(args[4]).state;
    training.load(state);
    step = state.integer("step");
  }
  const int64_t kill_after = std::stoll(args[5]);
  std::vector<torch::Tensor> losses;
  while (step < x.size(0)) {
    losses.push_back(training.step(x[step], y[step]));
    if (++step == kill_after) {
      auto state = training.state();
      state.set("step", step);
      io::save_checkpoint(args[4], state);
      std::raise(SIGKILL);
    }
  }
  write_result(args[3], training, losses, training.evaluate(x[0]));
}

// script_issues SCRIPT OUTPUT
void issues(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "usage: script_issues SCRIPT OUTPUT");
  auto result = nlohmann::json::object();
  std::string error;
  try {
    const auto module = load_script_module(args[0]);
    for (const auto& finding : module->findings()) {
      result[to_string(finding.issue)] = finding.message;
    }
  } catch (const c10::Error& refused) {
    error = refused.msg();
  }
  write_json(args[1], {{"findings", result}, {"error", error}});
}

const Command kScriptTrain{"script_train", train_script_module};
const Command kScriptIssues{"script_issues", issues};

} // namespace
} // namespace ampkit::oracle
