#include "dist/collective_check.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

// A hash, then text with zeros behind it.
constexpr size_t kHashBytes = sizeof(uint64_t);
constexpr size_t kTextBytes = 1016;

at::Tensor fingerprint(const std::string& compared, const std::string& shown) {
  auto bytes = at::zeros({kHashBytes + kTextBytes}, at::kByte);
  auto* data = bytes.mutable_data_ptr<uint8_t>();
  const auto hash = static_cast<uint64_t>(std::hash<std::string>()(compared));
  std::memcpy(data, &hash, kHashBytes);
  std::memcpy(
      data + kHashBytes, shown.data(), std::min(shown.size(), kTextBytes));
  return bytes;
}

bool same_hash(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(
             a.const_data_ptr<uint8_t>(),
             b.const_data_ptr<uint8_t>(),
             kHashBytes) == 0;
}

std::string shown_text(const at::Tensor& bytes) {
  const auto* text = bytes.const_data_ptr<uint8_t>() + kHashBytes;
  return {text, std::find(text, text + kTextBytes, 0)};
}

} // namespace

void CollectiveCheck::check(
    int64_t number, const std::string& what, const std::string& where) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> mine{fingerprint(c10::str(number, " ", what), where)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < backend_->getSize(); ++rank) {
    all[0].push_back(at::empty_like(mine[0]));
  }
  backend_->allgather(all, mine)->wait();
  for (size_t rank = 1; rank < all[0].size(); ++rank) {
    TORCH_CHECK(
        same_hash(all[0][0], all[0][rank]),
        "ranks disagree on a collective: rank 0 is ",
        shown_text(all[0][0]),
        "; rank ",
        rank,
        " is ",
        shown_text(all[0][rank]),
        "; all ranks must call the same ones in the same order, with tensors "
        "of "
        "the same shapes and dtypes");
  }
}

} // namespace ampkit::dist
