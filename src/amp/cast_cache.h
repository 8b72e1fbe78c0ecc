#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ampkit {

/// The low-precision copies of the weights that one thread used since its
/// outermost autocast region began.
///
/// A copy is keyed by the leaf it comes from, the storage, the view of it, the
/// dtype and whether the copy carries gradient history, and is valid for one
/// version of the leaf: a weight that was changed in place, or whose storage
/// was swapped, is cast anew. So is one that a gradient reached through a copy:
/// an optimizer's step follows, and LibTorch's SGD writes to `.data()`, which
/// has a version of its own. Entries hold the leaf and its storage, so that no
/// freed address can be taken for another tensor's.
class CastCache {
 public:
  /// `tensor` in `dtype`: from the cache if it is a float32 leaf that requires
  /// gradients, or a view of one; else a plain cast.
  at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype);

  void clear() { by_leaf_.clear(); }
  int64_t size() const;

 private:
  struct Entry {
    at::Tensor leaf;
    c10::Storage storage;
    std::vector<int64_t> geometry; // offset, sizes, strides
    at::ScalarType dtype;
    bool with_history;
    uint32_t version;
    at::Tensor copy;
  };

  /// The copies of one leaf, until a gradient has passed one of them. The flag
  /// is shared with hooks in graphs, which may run later and elsewhere.
  struct Copies {
    std::vector<Entry> entries;
    std::shared_ptr<std::atomic<bool>> passed;
  };

  static at::Tensor make_copy(
      const Copies& copies, const at::Tensor& tensor, at::ScalarType dtype);

  std::unordered_map<const c10::TensorImpl*, Copies> by_leaf_;
};

} // namespace ampkit
