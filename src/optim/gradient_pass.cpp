#include "optim/gradient_pass.h"

#include <algorithm>
#include <atomic>
#include <cmath>

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

float* moment_data(const ParameterRecord& record, size_t i) {
  return i < record.moments.size() && record.moments[i].defined()
             ? record.moments[i].mutable_data_ptr<float>()
             : nullptr;
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
  span.first = moment_data(record, 0);
  span.second = moment_data(record, 1);
  span.third = moment_data(record, 2);
  return span;
}

at::Tensor scalar(double value, at::ScalarType type) {
  return at::scalar_tensor(value, at::TensorOptions(type));
}

struct Totals {
  int64_t non_finite = 0;
  double sum_of_squares = 0;
  double norm = 0;

  /// Takes in a chunk or a gradient whose own norm is `part`.
  void add_norm(double part, double norm_type) {
    norm = std::isinf(norm_type) ? std::max(norm, part) : norm + part;
  }
};

// fp64 gradients: no own kernel.
Totals read_with_ops(const at::Tensor& grad, double norm_type) {
  const auto non_finite = grad.isfinite().logical_not().sum();
  const double two = at::linalg_vector_norm(grad).item<double>();
  return {
      non_finite.item<int64_t>(),
      two * two,
      at::linalg_vector_norm(grad, norm_type).item<double>()};
}

/// The norm of types 1 and infinity. What the chunk's inspection has just read
/// is in the cache.
double norm_of(const kernels::GradientSpan& chunk, double norm_type) {
  return norm_type == 1          ? kernels::sum_of_magnitudes(chunk)
         : std::isinf(norm_type) ? kernels::largest_magnitude(chunk)
                                 : 0;
}

void name(GradientSummary& summary, const Work& work) {
  summary.parameters.push_back(work.record->parameter);
  summary.names.push_back(work.record->name);
}

// On the CPU it is known which gradients are bad, and mostly none is.
void add_bad_ones(
    GradientSummary& summary,
    std::span<const Work> works,
    const std::vector<int64_t>& counts) {
  std::vector<float> bad;
  for (size_t i = 0; i < works.size(); ++i) {
    if (counts[i] > 0) {
      bad.push_back(static_cast<float>(counts[i]));
      name(summary, works[i]);
    }
  }
  if (!bad.empty()) {
    summary.non_finite_counts = at::tensor(bad);
  }
}

Totals read_on_cpu(
    std::span<const Work> works,
    double norm_type,
    std::vector<int64_t>& counts) {
  const auto chunks = split_into_chunks(works);
  std::vector<kernels::GradientSums> sums(chunks.size());
  std::vector<double> norms(chunks.size());
  for_each_chunk(chunks, /*backward=*/false, [&](size_t i) {
    const Work& work = works[chunks[i].work];
    if (has_own_kernel(work.grad)) {
      const auto span =
          kernels::slice(gradient_span(work), chunks[i].offset, chunks[i].size);
      sums[i] = kernels::inspect_gradient(span);
      norms[i] = norm_of(span, norm_type);
    }
  });
  counts.assign(works.size(), 0);
  Totals totals;
  for (size_t i = 0; i < chunks.size(); ++i) { // one order for any threads
    counts[chunks[i].work] += sums[i].non_finite;
    totals.sum_of_squares += sums[i].sum_of_squares;
    totals.add_norm(norms[i], norm_type);
  }
  for (size_t i = 0; i < works.size(); ++i) {
    if (!has_own_kernel(works[i].grad)) {
      const Totals of_one = read_with_ops(works[i].grad, norm_type);
      counts[i] = of_one.non_finite;
      totals.sum_of_squares += of_one.sum_of_squares;
      totals.add_norm(of_one.norm, norm_type);
    }
    totals.non_finite += counts[i];
  }
  if (norm_type == 2) {
    totals.norm = std::sqrt(totals.sum_of_squares);
  }
  return totals;
}

} // namespace

GradientSummary read_with_foreach_ops(
    std::span<const Work> works, c10::Device device, double norm_type) {
  GradientSummary summary{.with_gradient = static_cast<int64_t>(works.size())};
  std::vector<at::Tensor> norms;
  std::vector<at::Tensor> typed; // of norm_type, if that is not 2
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    std::vector<at::Tensor> grads;
    for (const Work& work : works) {
      if (work.grad.scalar_type() == type) {
        grads.push_back(work.grad);
        name(summary, work);
      }
    }
    if (!grads.empty()) {
      for (const at::Tensor& norm : at::_foreach_norm(
               grads, 2, type == at::kDouble ? at::kDouble : at::kFloat)) {
        norms.push_back(norm.to(at::kFloat));
      }
      if (norm_type != 2) {
        for (const at::Tensor& norm : at::_foreach_norm(
                 grads,
                 norm_type,
                 type == at::kDouble ? at::kDouble : at::kFloat)) {
          typed.push_back(norm.to(at::kFloat));
        }
      }
    }
  }
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  const auto all = norms.empty() ? at::zeros({0}, options) : at::stack(norms);
  summary.non_finite_counts = all.isfinite().logical_not().to(at::kFloat);
  summary.non_finite = summary.non_finite_counts.sum();
  summary.sum_of_squares = all.square().sum();
  summary.norm =
      at::linalg_vector_norm(typed.empty() ? all : at::stack(typed), norm_type);
  return summary;
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
    double norm_type,
    std::vector<int64_t>& counts) {
  if (!device.is_cpu()) {
    counts.clear();
    return read_with_foreach_ops(works, device, norm_type);
  }
  const Totals totals = read_on_cpu(works, norm_type, counts);
  GradientSummary summary{
      .non_finite = scalar(static_cast<double>(totals.non_finite), at::kFloat),
      .sum_of_squares = scalar(totals.sum_of_squares, at::kDouble),
      .norm = scalar(totals.norm, at::kDouble),
      .with_gradient = static_cast<int64_t>(works.size())};
  add_bad_ones(summary, works, counts);
  return summary;
}

std::vector<kernels::UpdateSpan> update_spans(
    std::span<const Work> works,
    const GradientUse& use,
    const std::function<bool(size_t i)>& maximize) {
  std::vector<kernels::UpdateSpan> spans;
  spans.reserve(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    kernels::UpdateSpan span = update_span(works[i]);
    span.grad_factor = maximize(i) ? -use.inverse_divisor : use.inverse_divisor;
    span.clip_value = use.clip_value;
    spans.push_back(span);
  }
  return spans;
}

kernels::UpdateSpan run_of(
    std::span<const kernels::UpdateSpan> spans, const Chunk& chunk) {
  return kernels::slice(spans[chunk.work], chunk.offset, chunk.size);
}

void update_elementwise(
    std::span<const Work> works,
    const GradientUse& use,
    const std::function<bool(size_t i)>& maximize,
    const UpdateRun& update) {
  const auto spans = update_spans(works, use, maximize);
  const auto chunks = split_into_chunks(works);
  for_each_chunk(chunks, /*backward=*/true, [&](size_t i) {
    update(chunks[i].work, run_of(spans, chunks[i]));
  });
}

void update_with_own_kernels(
    UpdateRule& rule, std::span<const Work> works, const GradientUse& use) {
  rule.update_on_cpu(works, use);
  for (const Work& work : works) {
    ++work.record->step;
    work.record->fresh = false;
    // Autograd and cast caches must see that the weights changed.
    work.record->parameter.unsafeGetTensorImpl()->bump_version();
  }
}

} // namespace ampkit::optim
