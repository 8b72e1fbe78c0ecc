#include <algorithm>
#include <array>

#include <ATen/Functions.h>

#include "amp/precision_controller_impl.h"

namespace ampkit {
namespace {

constexpr std::array<std::pair<LayerStage, const char*>, 5> kStages{
    {{LayerStage::low, "low"},
     {LayerStage::watched, "watched"},
     {LayerStage::waiting, "waiting"},
     {LayerStage::refused, "refused"},
     {LayerStage::fixed, "fixed"}}};

/// Dtypes of layers and moves, by the name that is saved.
constexpr std::array kDtypes{
    at::ScalarType::Undefined,
    at::ScalarType::Float,
    at::ScalarType::Half,
    at::ScalarType::BFloat16};

at::ScalarType parse_dtype(const std::string& name) {
  for (const auto dtype : kDtypes) {
    if (name == c10::toString(dtype)) {
      return dtype;
    }
  }
  TORCH_CHECK(
      false,
      "PrecisionController::load_state_dict: no dtype of layers is called '",
      name,
      "'");
}

at::Tensor to_tensor(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

// The values of a float64 entry [size]; size -1: any.
std::vector<double> reals(
    const io::StateDict& state, const std::string& name, int64_t size) {
  const auto& tensor = state.tensor(name);
  TORCH_CHECK(
      tensor.scalar_type() == at::kDouble && tensor.dim() == 1 &&
          (size < 0 || tensor.numel() == size),
      "PrecisionController::load_state_dict: entry '",
      name,
      "' must be a float64 vector",
      size < 0 ? std::string() : c10::str(" [", size, "]"),
      ", got ",
      io::describe(tensor));
  const auto values = tensor.cpu().contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

int64_t count(const io::StateDict& state, const std::string& name) {
  const int64_t value = state.integer(name);
  TORCH_CHECK(
      value >= 0,
      "PrecisionController::load_state_dict: entry '",
      name,
      "' must not be negative, got ",
      value);
  return value;
}

void save_tensor(
    io::StateDict& state,
    const std::string& name,
    const TensorStatistics& tensor) {
  state.set(
      name,
      to_tensor(
          {static_cast<double>(tensor.elements),
           tensor.overflow,
           tensor.underflow,
           tensor.subnormal,
           tensor.amax}));
}

TensorStatistics load_tensor(
    const io::StateDict& state, const std::string& name) {
  const auto values = reals(state, name, 5);
  return {
      .elements = static_cast<int64_t>(values[0]),
      .overflow = values[1],
      .underflow = values[2],
      .subnormal = values[3],
      .amax = values[4]};
}

io::StateDict save_layer(const ControlledLayer& layer) {
  const LayerStatistics& seen = layer.statistics;
  io::StateDict state;
  state.set("module", seen.module);
  state.set("stage", to_string(layer.stage));
  state.set("failing", layer.failing);
  state.set("failed_by_overflow", layer.failed_by_overflow);
  state.set("clean", layer.clean);
  state.set("failures", layer.failures);
  state.set("window", layer.window);
  state.set(
      "structural",
      to_tensor({layer.structural.begin(), layer.structural.end()}));
  state.set("dtype", c10::toString(seen.dtype));
  save_tensor(state, "output", seen.output);
  save_tensor(state, "output_gradient", seen.output_gradient);
  save_tensor(state, "parameter_gradient", seen.parameter_gradient);
  state.set("output_amax", to_tensor(seen.output_amax));
  state.set("gradient_amax", to_tensor(seen.gradient_amax));
  return state;
}

ControlledLayer load_layer(const io::StateDict& state) {
  ControlledLayer layer;
  layer.stage = parse_layer_stage(state.text("stage"));
  layer.failing = count(state, "failing");
  layer.failed_by_overflow = state.boolean("failed_by_overflow");
  layer.clean = count(state, "clean");
  layer.failures = count(state, "failures");
  layer.window = count(state, "window");
  const auto structural = reals(state, "structural", 3);
  std::copy(structural.begin(), structural.end(), layer.structural.begin());
  LayerStatistics& seen = layer.statistics;
  seen.module = state.text("module");
  seen.dtype = parse_dtype(state.text("dtype"));
  seen.output = load_tensor(state, "output");
  seen.output_gradient = load_tensor(state, "output_gradient");
  seen.parameter_gradient = load_tensor(state, "parameter_gradient");
  seen.output_amax = reals(state, "output_amax", -1);
  seen.gradient_amax = reals(state, "gradient_amax", -1);
  return layer;
}

PrecisionMove load_move(const io::StateDict& state) {
  return {
      .step = count(state, "step"),
      .module = state.text("module"),
      .from = parse_dtype(state.text("from")),
      .to = parse_dtype(state.text("to")),
      .reason = state.text("reason")};
}

std::string numbered(const char* name, size_t number) {
  return name + std::to_string(number);
}

} // namespace

std::string to_string(LayerStage stage) {
  for (const auto& [known, name] : kStages) {
    if (known == stage) {
      return name;
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

LayerStage parse_layer_stage(const std::string& name) {
  for (const auto& [stage, known] : kStages) {
    if (name == known) {
      return stage;
    }
  }
  TORCH_CHECK(
      false,
      "PrecisionController::load_state_dict: a layer's stage must be low, "
      "watched, waiting, refused or fixed, got '",
      name,
      "'");
}

io::StateDict PrecisionController::Impl::state_dict() const {
  io::StateDict state;
  state.set("step", step_);
  state.set("last_check", last_check_);
  state.set("urgent", urgent_);
  state.set("streak", streak()); // waits for the device
  state.set("layer_count", static_cast<int64_t>(layers_.size()));
  for (size_t i = 0; i < layers_.size(); ++i) {
    state.set_all(numbered("layers.", i), save_layer(layers_[i]));
  }
  std::vector<double> groups;
  for (const auto& [first, last] : groups_) {
    groups.push_back(static_cast<double>(first));
    groups.push_back(static_cast<double>(last));
  }
  state.set("groups", to_tensor(groups));
  state.set("move_count", static_cast<int64_t>(moves_.size()));
  for (size_t i = 0; i < moves_.size(); ++i) {
    state.set_all(numbered("moves.", i), to_row(moves_[i]));
  }
  return state;
}

void PrecisionController::Impl::load_state_dict(const io::StateDict& state) {
  const auto size = static_cast<size_t>(count(state, "layer_count"));
  TORCH_CHECK(
      size == layers_.size(),
      "PrecisionController::load_state_dict: the state is of a network of ",
      size,
      " layers, this one has ",
      layers_.size());
  std::vector<ControlledLayer> layers;
  for (size_t i = 0; i < size; ++i) {
    auto layer = load_layer(state.subset(numbered("layers.", i)));
    const bool fixed = layers_[i].stage == LayerStage::fixed;
    TORCH_CHECK(
        layer.statistics.module == layers_[i].statistics.module &&
            (layer.stage == LayerStage::fixed) == fixed,
        "PrecisionController::load_state_dict: layer ",
        i,
        " of the state is '",
        layer.statistics.module,
        "' (",
        to_string(layer.stage),
        "), here it is '",
        layers_[i].statistics.module,
        "' (",
        to_string(layers_[i].stage),
        "); build the same network with the same policy");
    layers.push_back(std::move(layer));
  }
  load_rest(state, std::move(layers));
}

void PrecisionController::Impl::load_rest(
    const io::StateDict& state, std::vector<ControlledLayer> layers) {
  std::deque<Group> groups;
  const auto limits = reals(state, "groups", -1);
  for (size_t i = 0; i + 1 < limits.size(); i += 2) {
    const auto first = static_cast<int64_t>(limits[i]);
    const auto last = static_cast<int64_t>(limits[i + 1]);
    TORCH_CHECK(
        0 <= first && first < last &&
            last <= static_cast<int64_t>(layers.size()),
        "PrecisionController::load_state_dict: entry 'groups' names layers "
        "that there are not");
    groups.emplace_back(first, last);
  }
  std::vector<PrecisionMove> moves;
  const auto move_count = static_cast<size_t>(count(state, "move_count"));
  for (size_t i = 0; i < move_count; ++i) {
    moves.push_back(load_move(state.subset(numbered("moves.", i))));
  }
  const int64_t step = count(state, "step");
  const int64_t last_check = count(state, "last_check");
  const int64_t streak = count(state, "streak");
  const bool urgent = state.boolean("urgent");
  // Nothing below throws.
  step_ = step;
  last_check_ = last_check;
  streak_ = streak;
  streak_on_device_ = at::Tensor();
  urgent_ = urgent;
  groups_ = std::move(groups);
  moves_ = std::move(moves);
  layers_ = std::move(layers);
  put_dtypes_in_force();
  recorder_->take();
  begin_step();
}

void PrecisionController::Impl::put_dtypes_in_force() {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto stage = layers_[i].stage;
    if (stage != LayerStage::fixed) {
      modules_.binding()->set_dtype(
          static_cast<int>(i),
          stage == LayerStage::low ? at::ScalarType::Undefined : at::kFloat);
    }
  }
}

} // namespace ampkit
