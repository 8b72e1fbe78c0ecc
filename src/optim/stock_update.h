#pragma once

#include <span>
#include <vector>

#include <ampkit/amp/fused_step.h>

#include "optim/parameter_record.h"
#include "optim/update_rule.h"

namespace ampkit::optim {

/// As many of `works` from `first` on as fit the limit for temporaries.
size_t end_of_batch(std::span<const Work> works, size_t first);

/// `works` with gradients that were divided and then clipped by the rows of
/// the weights.
std::vector<Work> clip_works(
    std::span<const Work> works,
    const at::Tensor& divisor,
    const AdaptiveClip& clip);

/// One step of `works` with LibTorch's fused ops, on any device, on prepared
/// records. Counts the step. Gradients are not written to: what is divided or
/// cast goes through temporaries of at most 64 MiB, or one parameter.
void update_with_stock_ops(
    const UpdateRule& rule,
    std::span<const Work> works,
    const FusedStepInputs& inputs);

} // namespace ampkit::optim
