#include "kernels/cpu_16bit_workspace.h"

#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace ampkit::kernels {

struct Workspace::Block {
  c10::DataPtr data;
  size_t bytes = 0;
};

/// The blocks that no op is using.
class Workspace::Pool {
 public:
  static Pool& instance() {
    // Never destroyed: tensors of a thread that outlives main() return here.
    static auto* const pool = new Pool;
    return *pool;
  }

  std::shared_ptr<Block> take(size_t bytes) {
    auto block = pop();
    if (block->bytes < bytes) {
      block->data.clear(); // first, so that both never exist
      block->bytes = 0;
      block->data = c10::GetCPUAllocator()->allocate(bytes);
      block->bytes = bytes;
    }
    return {block.release(), [this](Block* returned) { push(returned); }};
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    free_.clear();
  }

 private:
  std::unique_ptr<Block> pop() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      return std::make_unique<Block>();
    }
    // The last one used: its memory may still be in the caches.
    auto block = std::move(free_.back());
    free_.pop_back();
    return block;
  }

  void push(Block* block) {
    std::unique_ptr<Block> owner(block);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(owner));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> free_;
};

namespace {

constexpr size_t kAlignment = 64; // that of LibTorch's CPU allocator

size_t aligned_bytes(int64_t elements) {
  const auto bytes = static_cast<size_t>(elements) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

} // namespace

Workspace::Workspace(
    std::initializer_list<const at::Tensor*> inputs, int64_t extra) {
  size_t bytes = aligned_bytes(extra);
  for (const auto* input : inputs) {
    bytes += input->defined() ? aligned_bytes(input->numel()) : 0;
  }
  block_ = Pool::instance().take(bytes);
}

at::Tensor Workspace::upcast(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  auto copy =
      tensor.is_non_overlapping_and_dense()
          ? place(tensor.sizes(), tensor.strides())
          : place(
                tensor.sizes(),
                at::infer_dense_strides(tensor.sizes(), tensor.strides()));
  return copy.copy_(tensor);
}

std::optional<at::Tensor> Workspace::upcast(
    const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional(upcast(*tensor)) : std::nullopt;
}

at::Tensor Workspace::empty(at::IntArrayRef sizes) {
  return place(sizes, c10::TensorType::contiguousStridesOf(sizes));
}

at::Tensor Workspace::place(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto bytes = aligned_bytes(c10::multiply_integers(sizes));
  TORCH_INTERNAL_ASSERT(used_ + bytes <= block_->bytes);
  auto* start = static_cast<std::byte*>(block_->data.get()) + used_;
  used_ += bytes;
  auto holder = std::make_unique<std::shared_ptr<Block>>(block_);
  return at::for_blob(start, sizes)
      .strides(strides)
      .context(
          holder.release(),
          [](void* held) { delete static_cast<std::shared_ptr<Block>*>(held); })
      .options(at::TensorOptions(at::kCPU).dtype(at::kFloat))
      .target_device(at::Device(at::kCPU))
      .make_tensor();
}

void Workspace::release() {
  Pool::instance().clear();
}

} // namespace ampkit::kernels
