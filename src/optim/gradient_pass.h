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
    double norm_type,
    std::vector<int64_t>& counts);

/// What read_gradients() does on devices other than the CPU, for which it does
/// not wait.
GradientSummary read_with_foreach_ops(
    std::span<const Work> works, c10::Device device, double norm_type);

/// What own kernels need of each work. `maximize` says so for each.
std::vector<kernels::UpdateSpan> update_spans(
    std::span<const Work> works,
    const GradientUse& use,
    const std::function<bool(size_t i)>& maximize);

/// The elements of `chunk`.
kernels::UpdateSpan run_of(
    std::span<const kernels::UpdateSpan> spans, const Chunk& chunk);

/// Updates a run of elements of works[i]; called from several threads.
using UpdateRun = std::function<void(size_t i, const kernels::UpdateSpan& run)>;

/// Calls `update` for all elements of `works`, each once.
void update_elementwise(
    std::span<const Work> works,
    const GradientUse& use,
    const std::function<bool(size_t i)>& maximize,
    const UpdateRun& update);

/// One step of `works`, all on the CPU and in formats with own kernels, on
/// prepared records. Counts the step.
void update_with_own_kernels(
    UpdateRule& rule, std::span<const Work> works, const GradientUse& use);

} // namespace ampkit::optim
