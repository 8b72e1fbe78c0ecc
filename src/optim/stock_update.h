#pragma once

#include <span>

#include <ampkit/amp/fused_step.h>

#include "optim/parameter_record.h"
#include "optim/update_rule.h"

namespace ampkit::optim {

/// One step of `works` with LibTorch's fused ops, on any device, on prepared
/// records. Counts the step. Gradients are not written to: what is divided or
/// cast goes through temporaries of at most 64 MiB, or one parameter.
void update_with_stock_ops(
    const UpdateRule& rule,
    std::span<const Work> works,
    const FusedStepInputs& inputs);

} // namespace ampkit::optim
