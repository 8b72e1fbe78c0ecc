#include "amp/skip_counter.h"

#include <ATen/ATen.h>

namespace ampkit {
namespace {

SkipCounter::Counts counts_from(const at::Tensor& four, int64_t steps) {
  const auto host = four.to(at::kCPU); // waits, if it comes from a device
  const auto* c = host.const_data_ptr<int64_t>();
  return {
      .steps = steps,
      .skipped = c[0],
      .faults = c[1],
      .skips_in_a_row = c[2],
      .faults_in_a_row = c[3]};
}

at::Tensor four_of(const SkipCounter::Counts& c, c10::Device device) {
  return at::tensor(
             {c.skipped, c.faults, c.skips_in_a_row, c.faults_in_a_row},
             at::TensorOptions(at::kLong))
      .to(device, /*non_blocking=*/true);
}

} // namespace

void SkipCounter::add(
    int64_t first, const Flag& skipped, const Flag& fault, bool row) {
  if (!device_.defined()) {
    const Flag& unknown = skipped.is_known() ? fault : skipped;
    device_ = four_of(counts_, unknown.device());
  }
  const auto device = device_.device();
  const auto flags =
      at::stack({skipped.tensor(device), fault.tensor(device)}).to(at::kLong);
  auto part = device_.narrow(0, first, 2);
  part.add_(row ? 1 : 0);
  row ? part.mul_(flags) : part.add_(flags);
}

void SkipCounter::count_step(const Flag& skipped, const Flag& fault) {
  ++counts_.steps;
  if (device_.defined() || !skipped.is_known() || !fault.is_known()) {
    add(0, skipped, fault, /*row=*/false);
    return;
  }
  counts_.skipped += skipped.read() ? 1 : 0;
  counts_.faults += fault.read() ? 1 : 0;
}

void SkipCounter::count_iteration(const Flag& skipped, const Flag& fault) {
  if (device_.defined() || !skipped.is_known() || !fault.is_known()) {
    add(2, skipped, fault, /*row=*/true);
    return;
  }
  counts_.skips_in_a_row = skipped.read() ? counts_.skips_in_a_row + 1 : 0;
  counts_.faults_in_a_row = fault.read() ? counts_.faults_in_a_row + 1 : 0;
}

SkipCounter::Counts SkipCounter::read() const {
  return device_.defined() ? counts_from(device_, counts_.steps) : counts_;
}

void SkipCounter::load(const Counts& counts) {
  counts_ = counts;
  device_ = at::Tensor();
  copy_ = LaggedCopy();
}

SkipCounter::Peek SkipCounter::peek() {
  if (!device_.defined()) {
    return {.counts = counts_};
  }
  Peek peek;
  if (const auto arrived = copy_.receive()) {
    peek.counts = counts_from(*arrived, counts_.steps);
  }
  peek.sent = !copy_.under_way();
  copy_.send(device_);
  return peek;
}

} // namespace ampkit
