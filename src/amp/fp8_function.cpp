#include "amp/fp8_function.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "kernels/no_autocast.h"

namespace ampkit {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the graph remembers of a product besides FP8 tensors.
struct Call : torch::CustomClassHolder {
  std::shared_ptr<Fp8State> state;
  Fp8Weight* place = nullptr; // lives as long as `state`
  at::ScalarType dtype = at::kBFloat16; // of output and gradients
  std::vector<int64_t> input_shape;
  at::ScalarType input_dtype = at::kFloat;
  at::ScalarType weight_dtype = at::kFloat;
  at::ScalarType bias_dtype = at::kFloat;
  // With autograd, and for which gradients.
  bool training = false;
  bool for_input = false;
  bool for_weight = false;
  bool for_bias = false;
};

constexpr const char* kCall = "call";
// Of the gradients that backward() returns.
constexpr size_t kInput = 0;
constexpr size_t kWeight = 1;
constexpr size_t kBias = 2;

struct Fp8Product : torch::autograd::Function<Fp8Product> {
  static at::Tensor forward(
      AutogradContext* context,
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      const c10::intrusive_ptr<Call>& call) {
    const NoAutocast no_autocast;
    Fp8State& state = *call->state;
    const auto rows =
        input.reshape({-1, input.size(-1)}).to(call->dtype).detach();
    const auto quantized_input =
        state.quantize(rows, *call->place, Fp8Role::input, 1, call->training);
    const auto [for_output, for_gradient] = state.quantize_weight(
        *call->place, weight.detach(), call->training, call->for_input);
    auto output =
        state.matmul(quantized_input, for_output, call->dtype, /*fast=*/true);
    if (bias.has_value() && bias->defined()) {
      output.add_(bias->detach().to(call->dtype));
    }
    save(context, call, rows, quantized_input, for_gradient);
    auto shape = input.sizes().vec();
    shape.back() = weight.size(1);
    // Not a view: nn::Linear adds its bias in place, which autograd refuses on
    // a view that the function made.
    return at::_unsafe_view(output, shape);
  }

  static variable_list backward(
      AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK(
        !at::GradMode::is_enabled(),
        "Fp8Linears: an FP8 product has no second derivative; call backward() "
        "without create_graph, or filter that layer (filter_fqns)");
    const NoAutocast no_autocast;
    const auto call = c10::static_intrusive_pointer_cast<Call>(
        context->saved_data.at(kCall).toCapsule());
    // 4: an entry for each argument of forward().
    variable_list result(4);
    if (!gradients[0].defined()) {
      return result;
    }
    const at::Tensor& gradient = gradients[0];
    const auto rows = gradient.reshape({-1, gradient.size(-1)});
    if (call->for_bias && context->needs_input_grad(kBias)) {
      result[kBias] = rows.sum(0, false, at::kFloat).to(call->bias_dtype);
    }
    multiply(context, *call, rows.to(call->dtype), result);
    return result;
  }

 private:
  static void save(
      AutogradContext* context,
      const c10::intrusive_ptr<Call>& call,
      const at::Tensor& rows,
      const Fp8Tensor& quantized_input,
      const Fp8Tensor& weight) {
    if (!call->training) {
      return;
    }
    Fp8Tensor input;
    if (call->for_weight) {
      input = call->state->row_wise()
                  ? call->state->quantize(
                        rows, *call->place, Fp8Role::input, 0, false)
                  : quantized_input;
    }
    context->saved_data[kCall] = c10::IValue::make_capsule(call);
    context->save_for_backward(
        {input.data, input.inverse, weight.data, weight.inverse});
  }

  // The two products of the backward pass.
  static void multiply(
      AutogradContext* context,
      const Call& call,
      const at::Tensor& rows,
      variable_list& result) {
    Fp8State& state = *call.state;
    const bool for_input = context->needs_input_grad(kInput);
    const bool for_weight = context->needs_input_grad(kWeight);
    if (!for_input && !for_weight) {
      return;
    }
    const auto saved = context->get_saved_variables();
    auto gradient = state.quantize(
        rows, *call.place, Fp8Role::gradient, 1, /*record=*/true);
    if (for_input) {
      const Fp8Tensor weight{saved[2], saved[3]};
      result[kInput] =
          state.matmul(gradient, weight.t(), call.dtype, /*fast=*/false)
              .view(call.input_shape)
              .to(call.input_dtype);
    }
    if (for_weight) {
      if (state.row_wise()) {
        gradient =
            state.quantize(rows, *call.place, Fp8Role::gradient, 0, false);
      }
      const Fp8Tensor input{saved[0], saved[1]};
      result[kWeight] =
          state.matmul(gradient.t(), input, call.dtype, /*fast=*/false)
              .to(call.weight_dtype)
              .t();
    }
  }
};

} // namespace

at::Tensor fp8_product(
    const std::shared_ptr<Fp8State>& state,
    Fp8Weight& place,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::ScalarType dtype) {
  const bool with_bias = bias.has_value() && bias->defined();
  auto call = c10::make_intrusive<Call>();
  call->state = state;
  call->place = &place;
  call->dtype = dtype;
  call->input_shape = input.sizes().vec();
  call->input_dtype = input.scalar_type();
  call->weight_dtype = weight.scalar_type();
  call->bias_dtype = with_bias ? bias->scalar_type() : at::kFloat;
  const bool with_grad = at::GradMode::is_enabled();
  call->for_input = with_grad && input.requires_grad();
  call->for_weight = with_grad && weight.requires_grad();
  call->for_bias = with_grad && with_bias && bias->requires_grad();
  call->training = call->for_input || call->for_weight || call->for_bias;
  return Fp8Product::apply(input, weight, bias, call);
}

} // namespace ampkit
