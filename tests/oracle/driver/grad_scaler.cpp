#include <ampkit/amp/grad_scaler.h>

#include <cmath>
#include <iomanip>
#include <limits>
#include <memory>
#include <sstream>

#include <ampkit/io/checkpoint.h>
#include <ampkit/io/module_state.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

std::unique_ptr<torch::optim::Optimizer> make_sgd(
    const std::string& kind, const torch::Tensor& weight) {
  const std::vector<torch::Tensor> parameters{weight};
  if (kind == "torch") {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(0.125));
  }
  TORCH_CHECK(kind == "ampkit", "unknown optimizer ", kind);
  return std::make_unique<optim::SGD>(
      parameters, optim::SGDOptions{.lr = 0.125});
}

// torch.amp.GradScaler has no limits of the scale.
GradScalerOptions options_from(const json& given) {
  GradScalerOptions options{
      .init_scale = given.at("init_scale"),
      .growth_factor = given.at("growth_factor"),
      .backoff_factor = given.at("backoff_factor"),
      .growth_interval = given.at("growth_interval"),
      .torch_exact = given.value("torch_exact", false)};
  if (!options.torch_exact) {
    options.min_scale =
        given.value("min_scale", double{std::numeric_limits<float>::min()});
    options.max_scale = std::numeric_limits<float>::max();
    options.hysteresis = given.value("hysteresis", int64_t{1});
    options.consecutive_hysteresis =
        given.value("consecutive_hysteresis", false);
  }
  return options;
}

// JSON has no inf and NaN, so gradients and weights travel as texts; Python
// reads them as doubles.
float number(const json& text) {
  return std::stof(text.get<std::string>());
}

std::string text(double number) {
  std::ostringstream out;
  out << std::setprecision(17) << number;
  return out.str();
}

class Run {
 public:
  Run(const std::string& optimizer, const json& options)
      : sgd_(make_sgd(optimizer, weight_)),
        scaler_(std::make_unique<GradScaler>(options_from(options))),
        options_(options_from(options)) {
    weight_.mutable_grad() = torch::zeros({3});
  }

  json run(const json& events) {
    json trace = json::array();
    for (const json& event : events) {
      bool refused = false;
      try {
        call(event);
      } catch (const c10::Error&) {
        refused = true;
      }
      const auto* w = weight_.const_data_ptr<float>();
      trace.push_back(
          {{"refused", refused},
           {"scale", scaler_->get_scale()},
           {"tracker", scaler_->state_dict().integer("_growth_tracker")},
           {"weight", {text(w[0]), text(w[1]), text(w[2])}}});
    }
    return trace;
  }

 private:
  void call(const json& event) {
    const std::string name = event.at(0);
    if (name == "scale") {
      scaler_->scale(torch::tensor(number(event.at(1))));
    } else if (name == "grad") {
      const json& g = event.at(1);
      weight_.mutable_grad() =
          torch::tensor({number(g[0]), number(g[1]), number(g[2])});
    } else if (name == "unscale") {
      scaler_->unscale_(*sgd_);
    } else if (name == "step") {
      scaler_->step(*sgd_);
    } else if (name == "update") {
      scaler_->update();
    } else if (name == "set") {
      scaler_->update(event.at(1).get<double>());
    } else {
      TORCH_CHECK_VALUE(name == "save_load", "unknown event ", name);
      const auto state = scaler_->state_dict();
      GradScalerOptions options; // the rest comes from the state
      options.min_scale = options_.min_scale;
      options.max_scale = options_.max_scale;
      options.torch_exact = options_.torch_exact;
      scaler_ = std::make_unique<GradScaler>(options);
      scaler_->load_state_dict(state);
    }
  }

  torch::Tensor weight_ = torch::tensor({1.0F, 2.0F, 3.0F}).requires_grad_();
  std::unique_ptr<torch::optim::Optimizer> sgd_;
  std::unique_ptr<GradScaler> scaler_;
  GradScalerOptions options_;
};

void run_sequences(std::span<const std::string> args) {
  json traces = json::array();
  for (const json& sequence : read_json(args[1])) {
    Run run(args[0], sequence.at("options"));
    traces.push_back(run.run(sequence.at("events")));
  }
  write_json(args[2], traces);
}

// The scale after each of a list of overflows (true) and clean steps.
json scale_trace(const json& run) {
  auto options = options_from(run.at("options"));
  options.max_consecutive_skips = 0;
  GradScaler scaler(options);
  const auto weight = torch::zeros({1}).requires_grad_();
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(0.0));
  json trace = json::array();
  for (const bool overflow : run.at("overflows")) {
    scaler.scale(torch::ones({}));
    weight.mutable_grad() = torch::full(
        {1}, overflow ? std::numeric_limits<float>::infinity() : 0.0F);
    scaler.step(sgd);
    scaler.update();
    trace.push_back(scaler.get_scale());
  }
  return trace;
}

void run_rules(std::span<const std::string> args) {
  json traces = json::array();
  for (const json& run : read_json(args[0])) {
    traces.push_back(scale_trace(run));
  }
  write_json(args[1], traces);
}

// A small network under a scaler that grows, overflows and bears overflows, so
// that every part of its state matters.
struct Training {
  io::StateDict state() const {
    io::StateDict state;
    state.set_all("model", io::module_state(*net));
    state.set_all("optimizer", adamw.state_dict());
    state.set_all("scaler", scaler.state_dict());
    return state;
  }

  void load(const io::StateDict& state) {
    io::load_module_state(*net, state.subset("model"));
    adamw.load_state_dict(state.subset("optimizer"));
    scaler.load_state_dict(state.subset("scaler"));
  }

  // The loss of step 7 is NaN, the gradients of some others overflow.
  void step(int64_t number) {
    adamw.zero_grad();
    torch::manual_seed(static_cast<uint64_t>(number));
    const double factor = number == 7 ? std::nan("") : 1.0;
    const auto out = net->forward(torch::randn({4, 3}));
    scaler.scale(out.square().mean() * factor).backward();
    if (number % 4 == 1) {
      net->weight.mutable_grad()[0][0] = std::numeric_limits<float>::infinity();
    }
    scaler.step(adamw, {.max_norm = 1.0});
    scaler.update();
  }

  Training() {
    torch::manual_seed(0);
    net->reset_parameters();
  }

  torch::nn::Linear net{3, 2};
  optim::AdamW adamw{optim::named(*net), {.lr = 0.1}};
  GradScaler scaler{{.growth_interval = 3, .hysteresis = 2}};
};

// args: first and last step, file to begin with ("" for none), file to end
// with, file for the trace.
void run_steps(std::span<const std::string> args) {
  Training training;
  if (!args[2].empty()) {
    training.load(io::load_checkpoint(args[2]).state);
  }
  json trace = json::array();
  const int64_t last = std::stoll(args[1]);
  for (int64_t number = std::stoll(args[0]); number <= last; ++number) {
    training.step(number);
    trace.push_back(training.scaler.get_scale());
  }
  io::save_checkpoint(args[3], training.state());
  write_json(
      args[4],
      {{"scales", trace},
       {"taken", training.scaler.steps_taken()},
       {"faults", training.scaler.faults()}});
}

void write_state(std::span<const std::string> args) {
  json result;
  const bool torch_exact = args[1] == "torch_exact";
  const io::StateDict state =
      GradScaler({.torch_exact = torch_exact}).state_dict();
  for (const auto& [name, value] : state.entries()) {
    if (std::holds_alternative<int64_t>(value)) {
      result[name] = state.integer(name);
    } else {
      result[name] = state.real(name);
    }
  }
  write_json(args[0], result);
}

const Command kScalerSequences{"grad_scaler", run_sequences};
const Command kScalerRules{"grad_scaler_rules", run_rules};
const Command kScalerSteps{"grad_scaler_steps", run_steps};
const Command kScalerState{"grad_scaler_state", write_state};

} // namespace
} // namespace ampkit::oracle
