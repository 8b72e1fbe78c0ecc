#include <optional>
#include <string>

#include <ATen/CPUFunctions.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/util/DimVector.h>

#include "kernels/cpu_16bit_ops.h"

// linear, matmul, einsum, bilinear, multi-head attention, the recurrent layers
// and the backward of each end in the ops below: mv and addr call addmv and
// mul, matmul calls mm, mv, bmm or dot.
//
// The at::cpu:: functions are the very ones that the dispatcher calls for these
// ops at the CPU key, so that everything we do not want stays stock.

namespace ampkit::kernels {
namespace {

using at::Scalar;
using at::Tensor;
using Sizes = std::optional<c10::DimVector>;

/// The shape of a product, or nothing if there is none: then the stock kernel
/// says what is wrong.
Sizes mm_sizes(const Tensor& left, const Tensor& right) {
  const bool fits =
      left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0);
  return fits ? Sizes({left.size(0), right.size(1)}) : std::nullopt;
}

Sizes bmm_sizes(const Tensor& left, const Tensor& right) {
  const bool fits = left.dim() == 3 && right.dim() == 3 &&
                    left.size(0) == right.size(0) &&
                    left.size(2) == right.size(1);
  return fits ? Sizes({left.size(0), left.size(1), right.size(2)})
              : std::nullopt;
}

/// Of addbmm, which sums over the batch.
Sizes sum_of_bmm_sizes(const Tensor& left, const Tensor& right) {
  const auto sizes = bmm_sizes(left, right);
  return sizes ? Sizes({(*sizes)[1], (*sizes)[2]}) : std::nullopt;
}

Sizes mv_sizes(const Tensor& left, const Tensor& right) {
  const bool fits =
      left.dim() == 2 && right.dim() == 1 && left.size(1) == right.size(0);
  return fits ? Sizes(c10::DimVector{left.size(0)}) : std::nullopt;
}

bool is_small(const Tensor& left, const Tensor& right) {
  const auto columns = right.dim() > 1 ? right.size(-1) : 1;
  return left.numel() * columns <= kSmallMultiplyAdds;
}

/// Writes an FP32 result into an out= tensor of a 16-bit dtype, by the rules
/// for such tensors: resized with LibTorch's warning, strides kept.
Tensor& write_out(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

/// mm and bmm: the stock function, its out= form, and the shape of the result.
template <auto kStock, auto kStockOut, auto kSizes>
struct Product {
  static Tensor functional(const Tensor& left, const Tensor& right) {
    const auto dtype =
        dtype_through_fp32(left, {&right}, is_small(left, right));
    if (const auto sizes = dtype ? kSizes(left, right) : std::nullopt) {
      return downcast(in_fp32(left, right, *sizes), *dtype);
    }
    return kStock(left, right);
  }

  static Tensor& out(const Tensor& left, const Tensor& right, Tensor& result) {
    const auto dtype =
        dtype_through_fp32(left, {&right, &result}, is_small(left, right));
    if (const auto sizes = dtype ? kSizes(left, right) : std::nullopt) {
      return write_out(result, in_fp32(left, right, *sizes));
    }
    return kStockOut(left, right, result);
  }

 private:
  static Tensor in_fp32(
      const Tensor& left, const Tensor& right, at::IntArrayRef sizes) {
    Workspace fp32({&left, &right}, c10::multiply_integers(sizes));
    auto result = fp32.empty(sizes);
    kStockOut(fp32.upcast(left), fp32.upcast(right), result);
    return result;
  }
};

/// addmm, baddbmm, addbmm and addmv: beta * self + alpha * product.
template <auto kStock, auto kStockInplace, auto kStockOut, auto kSizes>
struct AddProduct {
  static Tensor functional(
      const Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha) {
    const auto dtype =
        dtype_through_fp32(self, {&left, &right}, is_small(left, right));
    if (const auto sizes = dtype ? kSizes(left, right) : std::nullopt) {
      return downcast(in_fp32(self, left, right, beta, alpha, *sizes), *dtype);
    }
    return kStock(self, left, right, beta, alpha);
  }

  static Tensor& inplace(
      Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha) {
    if (dtype_through_fp32(self, {&left, &right}, is_small(left, right))) {
      // In place on the copy: checks, as the stock one does, that the sum
      // still has the shape of self.
      Workspace fp32{&self, &left, &right};
      auto sum = fp32.upcast(self);
      kStockInplace(sum, fp32.upcast(left), fp32.upcast(right), beta, alpha);
      return self.copy_(sum);
    }
    return kStockInplace(self, left, right, beta, alpha);
  }

  static Tensor& out(
      const Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha,
      Tensor& result) {
    const auto dtype = dtype_through_fp32(
        self, {&left, &right, &result}, is_small(left, right));
    if (const auto sizes = dtype ? kSizes(left, right) : std::nullopt) {
      return write_out(result, in_fp32(self, left, right, beta, alpha, *sizes));
    }
    return kStockOut(self, left, right, beta, alpha, result);
  }

 private:
  static Tensor in_fp32(
      const Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha,
      at::IntArrayRef sizes) {
    Workspace fp32({&self, &left, &right}, c10::multiply_integers(sizes));
    auto result = fp32.empty(sizes);
    kStockOut(
        fp32.upcast(self),
        fp32.upcast(left),
        fp32.upcast(right),
        beta,
        alpha,
        result);
    return result;
  }
};

/// The vector product of matmul.
Tensor dot(const Tensor& self, const Tensor& other) {
  if (const auto dtype =
          dtype_through_fp32(self, {&other}, is_small(self, other))) {
    Workspace fp32{&self, &other};
    return downcast(
        at::cpu::dot(fp32.upcast(self), fp32.upcast(other)), *dtype);
  }
  return at::cpu::dot(self, other);
}

using Mm = Product<&at::cpu::mm, &at::cpu::mm_outf, &mm_sizes>;
using Bmm = Product<&at::cpu::bmm, &at::cpu::bmm_outf, &bmm_sizes>;
using Addmm = AddProduct<
    &at::cpu::addmm,
    &at::cpu::addmm_,
    &at::cpu::addmm_outf,
    &mm_sizes>;
using Baddbmm = AddProduct<
    &at::cpu::baddbmm,
    &at::cpu::baddbmm_,
    &at::cpu::baddbmm_outf,
    &bmm_sizes>;
using Addbmm = AddProduct<
    &at::cpu::addbmm,
    &at::cpu::addbmm_,
    &at::cpu::addbmm_outf,
    &sum_of_bmm_sizes>;
using Addmv = AddProduct<
    &at::cpu::addmv,
    &at::cpu::addmv_,
    &at::cpu::addmv_outf,
    &mv_sizes>;

template <typename Family>
void register_family(torch::Library& library, const std::string& name) {
  library.impl(name.c_str(), &Family::functional);
  library.impl((name + ".out").c_str(), &Family::out);
  if constexpr (requires { &Family::inplace; }) {
    library.impl((name + "_").c_str(), &Family::inplace);
  }
}

} // namespace

void register_matmul_16bit(torch::Library& library) {
  register_family<Mm>(library, "mm");
  register_family<Bmm>(library, "bmm");
  register_family<Addmm>(library, "addmm");
  register_family<Baddbmm>(library, "baddbmm");
  register_family<Addbmm>(library, "addbmm");
  register_family<Addmv>(library, "addmv");
  library.impl("dot", &dot);
}

} // namespace ampkit::kernels
