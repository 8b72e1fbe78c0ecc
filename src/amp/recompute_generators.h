#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace ampkit::recompute_detail {

/// States of the default generators: of the CPU, and of the CUDA devices in
/// use.
using GeneratorStates = std::vector<std::pair<at::Generator, at::Tensor>>;

GeneratorStates generator_states();

void set_generator_states(const GeneratorStates& states);

} // namespace ampkit::recompute_detail
