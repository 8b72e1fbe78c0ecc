#include "optim/gradient_pass.h"

#include <algorithm>
#include <atomic>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/optim_gradients.h"

namespace ampkit::optim {
namespace {

// Large enough to hide what a chunk costs by itself, small enough to balance.
constexpr size_t kChunk = 32768;
// Below it, waking a thread takes longer than the work.
constexpr size_t kElementsPerThread = 32768;

size_t element_count(std::span<const Chunk> chunks) {
  size_t count = 0;
  for (const Chunk& chunk : chunks) {
    count += chunk.size;
  }
  return count;
}

kernels::GradientSpan gradient_span(const Work& work) {
  return {
      work.grad.const_data_ptr(),
      float_type(work.grad.scalar_type()),
      static_cast<size_t>(work.grad.numel())};
}

kernels::UpdateSpan update_span(const Work& work) {
  const ParameterRecord& record = *work.record;
  kernels::UpdateSpan span{.grad = gradient_span(work)};
  if (record.master.defined()) {
    span.weight = record.master.mutable_data_ptr<float>();
    span.mirror = record.parameter.mutable_data_ptr();
    span.mirror_type = float_type(record.parameter.scalar_type());
  } else {
    span.weight = record.parameter.mutable_data_ptr<float>();
  }
  if (!record.moments.empty()) {
    span.first = record.moments[0].mutable_data_ptr<float>();
  }
  if (record.moments.size() > 1) {
    span.second = record.moments[1].mutable_data_ptr<float>();
  }
  return span;
}

at::Tensor scalar(double value, at::ScalarType type) {
  return at::scalar_tensor(value, at::TensorOptions(type));
}

struct Totals {
  int64_t non_finite = 0;
  double sum_of_squares = 0;
};

// fp64 gradients: no own kernel.
Totals read_with_ops(const at::Tensor& grad) {
  const auto non_finite = grad.isfinite().logical_not().sum();
  const double norm = at::linalg_vector_norm(grad).item<double>();
  return {non_finite.item<int64_t>(), norm * norm};
}

Totals read_on_cpu(std::span<const Work> works, std::vector<int64_t>& counts) {
  const auto chunks = split_into_chunks(works);
  std::vector<kernels::GradientSums> sums(chunks.size());
  for_each_chunk(chunks, /*backward=*/false, [&](size_t i) {
    const Work& work = works[chunks[i].work];
    if (has_own_kernel(work.grad)) {
      sums[i] = kernels::inspect_gradient(kernels::slice(
          gradient_span(work), chunks[i].offset, chunks[i].size));
    }
  });
  counts.assign(works.size(), 0);
  Totals totals;
  for (size_t i = 0; i < chunks.size(); ++i) { // one order for any threads
    counts[chunks[i].work] += sums[i].non_finite;
    totals.sum_of_squares += sums[i].sum_of_squares;
  }
  for (size_t i = 0; i < works.size(); ++i) {
    if (!has_own_kernel(works[i].grad)) {
      const Totals of_one = read_with_ops(works[i].grad);
      counts[i] = of_one.non_finite;
      totals.sum_of_squares += of_one.sum_of_squares;
    }
    totals.non_finite += counts[i];
  }
  return totals;
}

} // namespace

GradientSummary read_with_foreach_ops(
    std::span<const Work> works, c10::Device device) {
  std::vector<at::Tensor> norms;
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    std::vector<at::Tensor> grads;
    for (const Work& work : works) {
      if (work.grad.scalar_type() == type) {
        grads.push_back(work.grad);
      }
    }
    if (!grads.empty()) {
      for (const at::Tensor& norm : at::_foreach_norm(
               grads, 2, type == at::kDouble ? at::kDouble : at::kFloat)) {
        norms.push_back(norm.to(at::kFloat));
      }
    }
  }
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  const auto all = norms.empty() ? at::zeros({0}, options) : at::stack(norms);
  return {
      .non_finite = all.isfinite().logical_not().sum().to(at::kFloat),
      .sum_of_squares = all.square().sum(),
      .with_gradient = static_cast<int64_t>(works.size())};
}

std::vector<Chunk> split_into_chunks(std::span<const Work> works) {
  std::vector<Chunk> chunks;
  chunks.reserve(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    const auto size = static_cast<size_t>(works[i].grad.numel());
    for (size_t offset = 0; offset < size; offset += kChunk) {
      chunks.push_back({i, offset, std::min(kChunk, size - offset)});
    }
  }
  return chunks;
}

void for_each_chunk(
    std::span<const Chunk> chunks,
    bool backward,
    const std::function<void(size_t)>& body) {
  const size_t count = chunks.size();
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      body(backward ? count - 1 - i : i);
    }
  };
  const size_t wanted =
      (element_count(chunks) + kElementsPerThread - 1) / kElementsPerThread;
  const auto threads = std::min(
      static_cast<int64_t>(std::min(wanted, count)),
      static_cast<int64_t>(at::get_num_threads()));
  if (threads <= 1) {
    work();
    return;
  }
  // Each thread takes the next chunk when it is done with one: a core that is
  // slower or shared with somebody does less.
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) { work(); });
}

GradientSummary read_gradients(
    std::span<const Work> works,
    c10::Device device,
    std::vector<int64_t>& counts) {
  if (!device.is_cpu()) {
    counts.clear();
    return read_with_foreach_ops(works, device);
  }
  const Totals totals = read_on_cpu(works, counts);
  return {
      .non_finite = scalar(static_cast<double>(totals.non_finite), at::kFloat),
      .sum_of_squares = scalar(totals.sum_of_squares, at::kDouble),
      .with_gradient = static_cast<int64_t>(works.size())};
}

void update_on_cpu(
    UpdateRule& rule, std::span<const Work> works, float inverse_divisor) {
  rule.prepare(works, inverse_divisor);
  std::vector<kernels::UpdateSpan> spans;
  spans.reserve(works.size());
  for (const Work& work : works) {
    spans.push_back(update_span(work));
  }
  const auto chunks = split_into_chunks(works);
  for_each_chunk(chunks, /*backward=*/true, [&](size_t i) {
    const Chunk& chunk = chunks[i];
    rule.update(
        chunk.work,
        kernels::slice(spans[chunk.work], chunk.offset, chunk.size));
  });
  for (const Work& work : works) {
    ++work.record->step;
    work.record->fresh = false;
    // Autograd and cast caches must see that the weights changed.
    work.record->parameter.unsafeGetTensorImpl()->bump_version();
  }
}

} // namespace ampkit::optim
