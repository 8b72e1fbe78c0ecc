#include <ampkit/dist/distributed_sampler.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

// SplitMix64: https://doi.org/10.1145/2714064.2660195
class SampleOrder {
 public:
  SampleOrder(uint64_t seed, uint64_t epoch)
      : state_(mix(mix(seed) + kStep + epoch)) {}

  /// Uniform in [0, limit), but for a bias below limit / 2^64.
  uint64_t below(uint64_t limit) {
    state_ += kStep;
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(mix(state_)) * limit) >> 64U);
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15U;

  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

  uint64_t state_;
};

} // namespace

DistributedSampler::DistributedSampler(
    int64_t samples,
    int64_t samples_per_step,
    const Context& context,
    const DistributedSamplerOptions& options)
    : DistributedSampler(
          samples,
          samples_per_step,
          context.rank(),
          context.world_size(),
          options) {}

DistributedSampler::DistributedSampler(
    int64_t samples,
    int64_t samples_per_step,
    int64_t rank,
    int64_t world_size,
    const DistributedSamplerOptions& options)
    : samples_(samples),
      per_step_(samples_per_step),
      rank_(rank),
      world_size_(world_size),
      options_(options) {
  TORCH_CHECK_VALUE(
      rank >= 0 && rank < world_size,
      "DistributedSampler: rank must be in [0, world_size = ",
      world_size,
      "), got ",
      rank);
  TORCH_CHECK_VALUE(
      samples >= 1, "DistributedSampler: samples must be >= 1, got ", samples);
  TORCH_CHECK_VALUE(
      samples_per_step >= world_size,
      "DistributedSampler: samples_per_step, of all ranks together, must be >= "
      "world_size = ",
      world_size,
      ", got ",
      samples_per_step);
  TORCH_CHECK_VALUE(
      batches_per_epoch() > 0,
      "DistributedSampler: ",
      samples,
      " samples are fewer than samples_per_step = ",
      samples_per_step,
      " and drop_last is set; lower the one or unset the other");
  order_.resize(static_cast<size_t>(samples));
  shuffle();
}

void DistributedSampler::shuffle() {
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffle) {
    return;
  }
  SampleOrder random(options_.seed, static_cast<uint64_t>(epoch_));
  for (size_t left = order_.size(); left > 1; --left) {
    std::swap(order_[left - 1], order_[random.below(left)]);
  }
}

int64_t DistributedSampler::batches_per_epoch() const {
  return options_.drop_last ? samples_ / per_step_
                            : (samples_ - 1) / per_step_ + 1;
}

std::optional<std::vector<int64_t>> DistributedSampler::next() {
  if (batch_ == batches_per_epoch()) {
    start_epoch(epoch_ + 1);
    return std::nullopt;
  }
  const auto start = batch_ * per_step_;
  step_size_ = std::min(per_step_, samples_ - start);
  const auto first = order_.begin() + start;
  ++batch_;
  return std::vector<int64_t>(
      first + step_size_ * rank_ / world_size_,
      first + step_size_ * (rank_ + 1) / world_size_);
}

void DistributedSampler::start_epoch(int64_t epoch, int64_t batch) {
  TORCH_CHECK_VALUE(
      epoch >= 0,
      "DistributedSampler::start_epoch: epoch must be >= 0, got ",
      epoch);
  TORCH_CHECK_VALUE(
      batch >= 0 && batch <= batches_per_epoch(),
      "DistributedSampler::start_epoch: batch must be in [0, ",
      batches_per_epoch(),
      "], got ",
      batch);
  batch_ = batch;
  if (std::exchange(epoch_, epoch) != epoch) {
    shuffle();
  }
}

io::StateDict DistributedSampler::identity() const {
  io::StateDict state;
  state.set("samples", samples_);
  state.set("samples_per_step", per_step_);
  state.set("shuffle", options_.shuffle);
  state.set("drop_last", options_.drop_last);
  state.set("seed", static_cast<int64_t>(options_.seed));
  return state;
}

io::StateDict DistributedSampler::state_dict() const {
  auto state = identity();
  state.set("epoch", epoch_);
  state.set("batch", batch_);
  return state;
}

void DistributedSampler::load_state_dict(const io::StateDict& state) {
  const auto expected = identity();
  for (const auto& [name, value] : expected.entries()) {
    const auto* found = state.find(name);
    TORCH_CHECK(
        found != nullptr && io::describe(*found) == io::describe(value),
        "DistributedSampler::load_state_dict: ",
        name,
        " was ",
        found == nullptr ? "not saved" : io::describe(*found),
        " when the state was saved and is ",
        io::describe(value),
        " here, so that the batches would be others; use the settings of the "
        "run that is resumed");
  }
  start_epoch(state.integer("epoch"), state.integer("batch"));
}

} // namespace ampkit::dist
