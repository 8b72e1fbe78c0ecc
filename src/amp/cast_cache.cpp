#include "amp/cast_cache.h"

#include <ATen/core/grad_mode.h>

#include "amp/wrapped_or_traced.h"

namespace ampkit {
namespace {

/// The leaf whose values `tensor` shows, or an undefined tensor if a copy of it
/// must not be kept. Inputs, activations and frozen weights can't be told apart
/// here, so only what requires gradients counts as a weight.
at::Tensor cacheable_leaf(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.has_storage() ||
      tensor.is_inference()) {
    return {};
  }
  at::Tensor leaf = tensor;
  if (tensor.is_view()) {
    leaf = tensor._base();
  }
  return leaf.requires_grad() && leaf.is_leaf() ? leaf : at::Tensor();
}

bool same_geometry(
    const std::vector<int64_t>& geometry, const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return geometry.size() == 1 + sizes.size() * 2 &&
         geometry[0] == tensor.storage_offset() &&
         std::equal(sizes.begin(), sizes.end(), geometry.begin() + 1) &&
         std::equal(
             strides.begin(),
             strides.end(),
             geometry.begin() + 1 + static_cast<ptrdiff_t>(sizes.size()));
}

std::vector<int64_t> geometry_of(const at::Tensor& tensor) {
  std::vector<int64_t> geometry{tensor.storage_offset()};
  geometry.insert(geometry.end(), tensor.sizes().begin(), tensor.sizes().end());
  geometry.insert(
      geometry.end(), tensor.strides().begin(), tensor.strides().end());
  return geometry;
}

} // namespace

at::Tensor CastCache::make_copy(
    const Copies& copies, const at::Tensor& tensor, at::ScalarType dtype) {
  auto copy = tensor.to(dtype);
  if (copy.requires_grad()) {
    copy.register_hook([passed = copies.passed](const at::Tensor& /*grad*/) {
      passed->store(true);
    });
  }
  return copy;
}

at::Tensor CastCache::cast(const at::Tensor& tensor, at::ScalarType dtype) {
  at::Tensor leaf = cacheable_leaf(tensor);
  if (!leaf.defined() || wrapped_or_traced(tensor)) {
    return tensor.to(dtype);
  }
  const bool with_history =
      at::GradMode::is_enabled() && tensor.requires_grad();
  const auto version = static_cast<uint32_t>(leaf._version());
  Copies& copies = by_leaf_[leaf.unsafeGetTensorImpl()];
  if (copies.passed == nullptr || copies.passed->load()) {
    copies = {.passed = std::make_shared<std::atomic<bool>>(false)};
  }
  for (Entry& entry : copies.entries) {
    if (entry.dtype == dtype && entry.with_history == with_history &&
        same_geometry(entry.geometry, tensor)) {
      const auto* storage = tensor.storage().unsafeGetStorageImpl();
      if (entry.version != version ||
          entry.storage.unsafeGetStorageImpl() != storage) {
        entry.copy = make_copy(copies, tensor, dtype);
        entry.version = version;
        entry.storage = tensor.storage();
      }
      return entry.copy;
    }
  }
  copies.entries.push_back(
      {.leaf = std::move(leaf),
       .storage = tensor.storage(),
       .geometry = geometry_of(tensor),
       .dtype = dtype,
       .with_history = with_history,
       .version = version,
       .copy = make_copy(copies, tensor, dtype)});
  return copies.entries.back().copy;
}

int64_t CastCache::size() const {
  int64_t count = 0;
  for (const auto& [leaf, copies] : by_leaf_) {
    count += static_cast<int64_t>(copies.entries.size());
  }
  return count;
}

} // namespace ampkit
