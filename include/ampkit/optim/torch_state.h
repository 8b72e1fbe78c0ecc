#pragma once

#include <ampkit/export.h>
#include <ampkit/io/torch_value.h>
#include <ampkit/optim/fused_optimizer.h>

namespace ampkit::optim {

/// The state of `optimizer` as its counterpart in torch.optim gives it, for
/// load_state_dict() in Python:
///
///     io::save_torch_state("optimizer.pt", optim::to_torch_state_dict(adamw));
///
/// Parameters are numbered over all groups, in order. Of a 16-bit parameter the
/// fp32 master is there too, as `master`, which Python keeps and does not use
/// (but casts, with the moments, to the parameter's dtype on loading). The
/// steps of SGD and Muon, which Python does not count, are there as `step`.
/// Lion and LAMB, which torch.optim does not have, give the same form. Tensors
/// are shared: to freeze them, clone. Waits for the device.
AMPKIT_API io::TorchDict to_torch_state_dict(const FusedOptimizer& optimizer);

/// Takes over what `state_dict()` of the same optimizer of torch.optim gave,
/// from any device; the next steps of fp32 parameters are those that Python
/// would take (16-bit ones get masters, which Python's have not).
///
///     auto file = io::load_torch_state("optimizer.pt");
///     optim::load_torch_state_dict(adamw, file);
///
/// Groups and parameters are matched by order, as Python does; in a group with
/// `param_names` that are the names of the optimizer's parameters, by name.
/// Moments of fewer bits than fp32 are widened, which is exact; a missing
/// `step` of a parameter with moments counts as 1, for SGD and Muon. Masters
/// may be missing: they are made from the parameters then; a master that no
/// longer agrees with its parameter is brought in line at the next step.
/// Options that say how Python computes (foreach, fused, capturable,
/// differentiable) and `initial_lr` are passed over.
///
/// Throws c10::Error, having changed nothing, with a list of all that does not
/// fit: groups, counts, options that are missing, unknown or not supported,
/// shapes, dtypes and entries of parameters, by name.
AMPKIT_API void load_torch_state_dict(
    FusedOptimizer& optimizer, const io::TorchValue& state);

} // namespace ampkit::optim
