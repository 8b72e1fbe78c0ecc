#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include <ampkit/dist/context.h>
#include <ampkit/export.h>

namespace ampkit::dist {

/// Makes a tensor the largest over all ranks, element by element, in place. For
/// GradScalerOptions::agree_over_ranks and Fp8Options::reduce_amax:
///
///     const auto agree = ampkit::dist::max_over_ranks(context);
///     ampkit::GradScaler scaler(precision, {.agree_over_ranks = agree});
///
/// Each call is a collective. Keeps the connections of `context` open.
AMPKIT_API std::function<void(at::Tensor& values)> max_over_ranks(
    const Context& context);

/// Gives the sum over all ranks, element by element. For
/// GradientAccumulationOptions::sum_over_ranks.
AMPKIT_API std::function<at::Tensor(const at::Tensor& values)> sum_over_ranks(
    const Context& context);

} // namespace ampkit::dist
