#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

namespace ampkit::kernels {

/// Where one op keeps the FP32 copies of its inputs, and its FP32 result if
/// the stock kernel can write into a given tensor.
///
/// Fresh memory from the operating system costs more than the conversion that
/// fills it (every page faults once), and malloc returns blocks of this size
/// there after each op. So the memory is kept for the next op: one block for
/// each op that runs at the same time, as large as the largest has needed.
///
/// The tensors hold the block: it is reused only when all of them are gone.
class Workspace {
 public:
  /// Room for FP32 copies of `inputs` (undefined ones need none) and `extra`
  /// more elements.
  explicit Workspace(
      std::initializer_list<const at::Tensor*> inputs, int64_t extra = 0);

  /// `tensor` in FP32 as tensor.to(kFloat) would lay it out; undefined stays
  /// undefined.
  at::Tensor upcast(const at::Tensor& tensor);
  std::optional<at::Tensor> upcast(const std::optional<at::Tensor>& tensor);

  /// Contiguous, FP32, not initialised.
  at::Tensor empty(at::IntArrayRef sizes);

  /// Gives the memory that no op is using back to the operating system.
  static void release();

 private:
  struct Block;
  class Pool;

  at::Tensor place(at::IntArrayRef sizes, at::IntArrayRef strides);

  std::shared_ptr<Block> block_;
  size_t used_ = 0;
};

} // namespace ampkit::kernels
