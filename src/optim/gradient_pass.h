#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ampkit/amp/fused_step.h>

#include "optim/parameter_record.h"
#include "optim/update_rule.h"

namespace ampkit::optim {

/// Part of the elements of works[work].
struct Chunk {
  size_t work = 0;
  size_t offset = 0;
  size_t size = 0;
};

/// All elements of `works` in order, in chunks of the same size wherever a
/// tensor is long enough: the unit of parallel work, over all tensors at once,
/// so that neither many small ones nor few large ones leave a thread idle.
std::vector<Chunk> split_into_chunks(std::span<const Work> works);

/// Calls `body` for every index of `chunks`, from several threads if that is
/// worth it. Backward: the last first, which finds in the caches what a forward
/// pass left there.
void for_each_chunk(
    std::span<const Chunk> chunks,
    bool backward,
    const std::function<void(size_t)>& body);

/// Reads the gradients of `works`, all on one device. `counts`: receives, for
/// gradients on the CPU, the non-finite elements of each work.
GradientSummary read_gradients(
    std::span<const Work> works,
    c10::Device device,
    std::vector<int64_t>& counts);

/// What read_gradients() does on devices other than the CPU, for which it does
/// not wait.
GradientSummary read_with_foreach_ops(
    std::span<const Work> works, c10::Device device);

/// One step of `works`, all on the CPU and in formats with own kernels, on
/// prepared records. Counts the step.
void update_on_cpu(
    UpdateRule& rule, std::span<const Work> works, float inverse_divisor);

} // namespace ampkit::optim
