#include "dist/parameter_checksum.h"

#include <cstring>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ampkit::dist {
namespace {

// FNV-1a over words of 8 bytes, then over the rest.
int64_t checksum(const at::Tensor& tensor) {
  constexpr uint64_t kPrime = 0x100000001B3U;
  const auto values = tensor.detach().to(at::kCPU).contiguous();
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  const auto size = values.nbytes();
  uint64_t hash = 0xCBF29CE484222325U;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof(word));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32U; // high bits of a word reach the low ones
  }
  for (; i < size; ++i) {
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * kPrime;
  }
  return static_cast<int64_t>(hash);
}

} // namespace

void check_same_on_all_ranks(
    const Context& context,
    const std::vector<at::Tensor>& tensors,
    const std::vector<std::string>& names) {
  const at::NoGradGuard no_grad;
  auto sums = at::empty({static_cast<int64_t>(tensors.size())}, at::kLong);
  auto* values = sums.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < tensors.size(); ++i) {
    values[i] = checksum(tensors[i]);
  }
  std::vector<at::Tensor> mine{sums};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < context.world_size(); ++rank) {
    all[0].push_back(at::empty_like(sums));
  }
  context.process_group()->allgather(all, mine)->wait();
  const auto* first = all[0][0].const_data_ptr<int64_t>();
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t rank = 1; rank < all[0].size(); ++rank) {
      TORCH_CHECK(
          all[0][rank].const_data_ptr<int64_t>()[i] == first[i],
          "DistributedDataParallel::forward: ranks 0 and ",
          rank,
          " no longer have the same weights; the first that differs is '",
          names[i],
          "'. Something changed it on one rank only: an optimizer that "
          "skipped, "
          "a gradient that was not reduced, or random numbers");
    }
  }
}

} // namespace ampkit::dist
