#include <ATen/CPUFunctions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include "kernels/cpu_16bit_ops.h"

namespace ampkit::kernels {
namespace {

using at::Scalar;
using at::Tensor;

// The at::cpu:: functions are the very ones that the dispatcher calls for
// these ops at the CPU key, so that everything we do not want stays stock.

/// Writes an FP32 result into an out= tensor of a 16-bit dtype, by the rules
/// for such tensors: resized with LibTorch's warning, strides kept.
Tensor& write_out(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor mm(const Tensor& self, const Tensor& mat2) {
  if (const auto dtype = dtype_through_fp32(self, {&mat2})) {
    return downcast(at::cpu::mm(upcast(self), upcast(mat2)), *dtype);
  }
  return at::cpu::mm(self, mat2);
}

Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  if (dtype_through_fp32(self, {&mat2, &out})) {
    return write_out(out, at::cpu::mm(upcast(self), upcast(mat2)));
  }
  return at::cpu::mm_outf(self, mat2, out);
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  if (const auto dtype = dtype_through_fp32(self, {&mat2})) {
    return downcast(at::cpu::bmm(upcast(self), upcast(mat2)), *dtype);
  }
  return at::cpu::bmm(self, mat2);
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  if (dtype_through_fp32(self, {&mat2, &out})) {
    return write_out(out, at::cpu::bmm(upcast(self), upcast(mat2)));
  }
  return at::cpu::bmm_outf(self, mat2, out);
}

/// addmm, baddbmm, addmv and the like are one shape of code: a stock function
/// that adds a product, its in-place form and its out= form.
template <auto kStock, auto kStockInplace, auto kStockOut>
struct AddProduct {
  static Tensor functional(
      const Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha) {
    if (const auto dtype = dtype_through_fp32(self, {&left, &right})) {
      return downcast(in_fp32(self, left, right, beta, alpha), *dtype);
    }
    return kStock(self, left, right, beta, alpha);
  }

  static Tensor& inplace(
      Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha) {
    if (dtype_through_fp32(self, {&left, &right})) {
      // In place on the copy: checks, as the stock one does, that the sum
      // still has the shape of self.
      auto sum = upcast(self);
      kStockInplace(sum, upcast(left), upcast(right), beta, alpha);
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
    if (dtype_through_fp32(self, {&left, &right, &result})) {
      return write_out(result, in_fp32(self, left, right, beta, alpha));
    }
    return kStockOut(self, left, right, beta, alpha, result);
  }

 private:
  static Tensor in_fp32(
      const Tensor& self,
      const Tensor& left,
      const Tensor& right,
      const Scalar& beta,
      const Scalar& alpha) {
    return kStock(upcast(self), upcast(left), upcast(right), beta, alpha);
  }
};

using Addmm =
    AddProduct<&at::cpu::addmm, &at::cpu::addmm_, &at::cpu::addmm_outf>;
using Baddbmm =
    AddProduct<&at::cpu::baddbmm, &at::cpu::baddbmm_, &at::cpu::baddbmm_outf>;
using Addbmm =
    AddProduct<&at::cpu::addbmm, &at::cpu::addbmm_, &at::cpu::addbmm_outf>;
using Addmv =
    AddProduct<&at::cpu::addmv, &at::cpu::addmv_, &at::cpu::addmv_outf>;

template <typename Family>
void register_family(torch::Library& library, const std::string& name) {
  library.impl(name.c_str(), &Family::functional);
  library.impl((name + "_").c_str(), &Family::inplace);
  library.impl((name + ".out").c_str(), &Family::out);
}

} // namespace

void register_matmul_16bit(torch::Library& library) {
  library.impl("mm", &mm);
  library.impl("mm.out", &mm_out);
  library.impl("bmm", &bmm);
  library.impl("bmm.out", &bmm_out);
  register_family<Addmm>(library, "addmm");
  register_family<Baddbmm>(library, "baddbmm");
  register_family<Addbmm>(library, "addbmm");
  register_family<Addmv>(library, "addmv");
}

} // namespace ampkit::kernels
