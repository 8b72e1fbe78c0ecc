#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "amp/fp8_state.h"

namespace ampkit {

/// `input` [..., in] @ `weight` [in, out] + `bias` [out] in FP8, with autograd.
/// `place` is that of the weight in `state`.
at::Tensor fp8_product(
    const std::shared_ptr<Fp8State>& state,
    Fp8Weight& place,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::ScalarType dtype);

} // namespace ampkit
