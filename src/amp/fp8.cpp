#include <ampkit/amp/fp8.h>

#include <array>
#include <sstream>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "amp/fp8_state.h"

namespace ampkit {
namespace {

const char* name_of(Fp8Recipe recipe) {
  constexpr std::array<const char*, 3> kNames{"current", "delayed", "row_wise"};
  return kNames.at(static_cast<size_t>(recipe));
}

void check_options(const Fp8Options& options) {
  TORCH_CHECK_VALUE(
      options.amax_history_len >= 1,
      "Fp8Linears: amax_history_len must be >= 1, got ",
      options.amax_history_len);
  constexpr int64_t kMost = 64; // beyond, scales leave FP32
  TORCH_CHECK_VALUE(
      options.margin >= -kMost && options.margin <= kMost,
      "Fp8Linears: margin must be in [-64, 64], got ",
      options.margin);
  TORCH_CHECK_VALUE(
      options.recipe != Fp8Recipe::delayed ||
          !options.round_scales_to_power_of_2.value_or(false),
      "Fp8Linears: round_scales_to_power_of_2 is not for the delayed recipe");
}

Fp8State::NamedParameters named(const torch::nn::Module& module) {
  Fp8State::NamedParameters result;
  for (const auto& item : module.named_parameters()) {
    result.emplace_back(item.key(), item.value());
  }
  return result;
}

Fp8State::NamedParameters numbered(const std::vector<at::Tensor>& parameters) {
  Fp8State::NamedParameters result;
  for (const at::Tensor& parameter : parameters) {
    result.emplace_back(std::to_string(result.size()), parameter);
  }
  return result;
}

std::shared_ptr<Fp8State> make_state(
    const Fp8State::NamedParameters& parameters, const Fp8Options& options) {
  check_options(options);
  return std::make_shared<Fp8State>(parameters, options);
}

constexpr const char* kRecipe = "recipe";

std::array<std::string, 3> keys_of(const Fp8Weight& weight) {
  return {
      weight.name + ".amax_history",
      weight.name + ".scale",
      weight.name + ".scale_inv"};
}

// Of one saved layer whose tensors are there in the right shapes.
bool is_pair(const at::Tensor& scale, const at::Tensor& inverse) {
  return scale.isfinite().all().item<bool>() &&
         (scale > 0).all().item<bool>() &&
         scale.reciprocal().equal(inverse.to(scale.device()));
}

} // namespace

Fp8Linears::Fp8Linears(
    const torch::nn::Module& module, const Fp8Options& options)
    : state_(make_state(named(module), options)) {}

Fp8Linears::Fp8Linears(
    const std::vector<at::Tensor>& parameters, const Fp8Options& options)
    : state_(make_state(numbered(parameters), options)) {}

Fp8Linears::~Fp8Linears() = default;

at::Tensor Fp8Linears::linear(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::ScalarType dtype) {
  TORCH_CHECK(
      weight.dim() == 2,
      "Fp8Linears::linear: weight must be [out, in], got ",
      weight.sizes());
  auto output = state_->product(input, weight.t(), bias, dtype);
  TORCH_CHECK(
      output.defined(),
      "Fp8Linears::linear: can't run in FP8: input ",
      input.scalar_type(),
      input.sizes(),
      ", weight ",
      weight.scalar_type(),
      weight.sizes(),
      ", result ",
      dtype,
      "; layers() says which weights take part, results are BFloat16 or Half");
  return output;
}

void Fp8Linears::update() {
  state_->update();
}

std::vector<Fp8Layer> Fp8Linears::layers() const {
  std::vector<Fp8Layer> result;
  for (const Fp8Weight& weight : state_->weights()) {
    result.push_back(
        {.name = weight.name,
         .shape = weight.parameter.sizes().vec(),
         .excluded = weight.excluded,
         .products = weight.products});
  }
  return result;
}

const Fp8Options& Fp8Linears::options() const {
  return state_->options();
}

io::StateDict Fp8Linears::state_dict() const {
  return state_->state_dict();
}

void Fp8Linears::load_state_dict(const io::StateDict& state) {
  state_->load_state_dict(state);
}

io::StateDict Fp8State::state_dict() const {
  io::StateDict state;
  state.set(kRecipe, name_of(options_.recipe));
  for (const Fp8Weight& weight : weights_) {
    if (delayed_.has_value() && weight.excluded.empty()) {
      const auto part = delayed_->part(weight.column);
      const auto keys = keys_of(weight);
      state.set(keys[0], part.history);
      state.set(keys[1], part.scale);
      state.set(keys[2], part.inverse);
    }
  }
  return state;
}

std::string Fp8State::misfits(const io::StateDict& state) const {
  std::ostringstream problems;
  size_t expected = 1;
  for (const Fp8Weight& weight : weights_) {
    if (!delayed_.has_value() || !weight.excluded.empty()) {
      continue;
    }
    const auto keys = keys_of(weight);
    const auto part = delayed_->part(weight.column);
    const std::array<at::Tensor, 3> own{part.history, part.scale, part.inverse};
    expected += keys.size();
    bool fits = true;
    for (size_t i = 0; i < keys.size(); ++i) {
      const io::StateValue* value = state.find(keys[i]);
      const auto* saved = std::get_if<at::Tensor>(value);
      if (saved == nullptr || saved->sizes() != own[i].sizes() ||
          saved->scalar_type() != at::kFloat) {
        problems << "\n  " << keys[i] << " must be " << io::describe(own[i])
                 << ", the state has "
                 << (value == nullptr ? "none" : io::describe(*value));
        fits = false;
      }
    }
    if (fits && !is_pair(state.tensor(keys[1]), state.tensor(keys[2]))) {
      problems << "\n  " << keys[1] << " and " << keys[2]
               << " are not a pair of finite numbers above 0";
    }
  }
  if (state.size() > expected) {
    problems << "\n  it has " << state.size() << " entries, expected "
             << expected;
  }
  return problems.str();
}

void Fp8State::load_state_dict(const io::StateDict& state) {
  TORCH_CHECK(
      state.text(kRecipe) == name_of(options_.recipe),
      "Fp8Linears::load_state_dict: the state is of recipe ",
      state.text(kRecipe),
      ", this is ",
      name_of(options_.recipe));
  const std::string problems = misfits(state);
  TORCH_CHECK(
      problems.empty(),
      "Fp8Linears::load_state_dict: the state does not fit; nothing was "
      "loaded:",
      problems);
  for (const Fp8Weight& weight : weights_) {
    if (delayed_.has_value() && weight.excluded.empty()) {
      const auto keys = keys_of(weight);
      delayed_->set_part(
          weight.column,
          {.history = state.tensor(keys[0]),
           .scale = state.tensor(keys[1]),
           .inverse = state.tensor(keys[2])});
    }
  }
  const std::lock_guard lock(copies_mutex_);
  for (Fp8Weight& weight : weights_) {
    weight.copies.clear();
  }
}

} // namespace ampkit
