#pragma once

#include <memory>
#include <vector>

#include <ampkit/optim/fused_optimizer.h>
#include <nlohmann/json.hpp>

namespace ampkit::oracle {

/// The optimizer task["kind"] over `groups` of parameters, with the options of
/// task["groups"], which are PyTorch's keyword arguments, and the kernel
/// task["kernel"]: "stock", "highway" or "automatic".
std::unique_ptr<optim::FusedOptimizer> make_optimizer(
    const nlohmann::json& task,
    const std::vector<std::vector<at::Tensor>>& groups);

} // namespace ampkit::oracle
