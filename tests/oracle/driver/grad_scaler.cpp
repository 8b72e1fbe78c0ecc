#include <ampkit/amp/grad_scaler.h>

#include <iomanip>
#include <limits>
#include <memory>
#include <sstream>

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

// torch.amp.GradScaler has no limits.
GradScalerOptions without_limits(const json& options) {
  return {
      .init_scale = options.at("init_scale"),
      .growth_factor = options.at("growth_factor"),
      .backoff_factor = options.at("backoff_factor"),
      .growth_interval = options.at("growth_interval"),
      .min_scale = std::numeric_limits<float>::min(),
      .max_scale = std::numeric_limits<float>::max()};
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
        scaler_(std::make_unique<GradScaler>(without_limits(options))),
        options_(without_limits(options)) {
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
      scaler_->scale(torch::ones({}));
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
      GradScalerOptions options;
      options.min_scale = options_.min_scale;
      options.max_scale = options_.max_scale;
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

void write_state(std::span<const std::string> args) {
  json result;
  const io::StateDict state = GradScaler().state_dict();
  for (const auto& [name, value] : state.entries()) {
    if (std::holds_alternative<int64_t>(value)) {
      result[name] = state.integer(name);
    } else {
      result[name] = state.real(name);
    }
  }
  write_json(args[0], result);
}

const Command kSequences{"grad_scaler", run_sequences};
const Command kState{"grad_scaler_state", write_state};

} // namespace
} // namespace ampkit::oracle
