#include "amp/op_lists.h"

#include <array>

#include <ATen/autocast_mode.h>

namespace ampkit {
namespace {

#define AMPKIT_FULL_NAME_1(op) #op
#define AMPKIT_FULL_NAME_2(op, overload) #op "." #overload
#define AMPKIT_PICK(_1, _2, picked, ...) picked
#define AMPKIT_FULL_NAME(...)                                      \
  AMPKIT_PICK(__VA_ARGS__, AMPKIT_FULL_NAME_2, AMPKIT_FULL_NAME_1) \
  (__VA_ARGS__),

// LibTorch's header has the lists of CUDA. Those of CPU are in its source only:
// what is neither here nor below but has a kernel is on the float32 list.
constexpr std::string_view kCudaLower[] = {
    AT_FORALL_LOWER_PRECISION_FP(AMPKIT_FULL_NAME)
    // Registered by LibTorch's source besides the header's list.
    "cudnn_convolution",
    "cudnn_convolution_transpose"};
constexpr std::string_view kCudaPromote[] = {
    AT_FORALL_PROMOTE(AMPKIT_FULL_NAME)};
constexpr std::string_view kCudaRefuse[] = {"binary_cross_entropy"};

constexpr std::string_view kCpuLower[] = {
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "bmm",
    "mm",
    "linalg_vecdot",
    "baddbmm",
    "addmm",
    "_addmm_activation",
    "addbmm",
    "linear",
    "_convolution.deprecated",
    "matmul",
    "conv_tbc",
    "mkldnn_rnn_layer",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "prelu",
    "scaled_dot_product_attention",
    "_native_multi_head_attention"};
constexpr std::string_view kCpuPromote[] = {"stack", "cat", "index_copy"};

constexpr std::string_view kSoftmax[] = {
    "softmax.int",
    "log_softmax.int",
    "logsumexp",
    "special_softmax",
    "special_log_softmax"};
constexpr std::string_view kLosses[] = {
    "cross_entropy_loss",
    "nll_loss",
    "nll_loss2d",
    "nll_loss_nd",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "binary_cross_entropy_with_logits",
    "ctc_loss.IntList",
    "ctc_loss.Tensor"};
constexpr std::string_view kNorms[] = {
    "layer_norm",
    "native_layer_norm",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "rms_norm"};
constexpr std::string_view kTranscendental[] = {
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "reciprocal",
    "rsqrt",
    "softplus",
    "cosine_similarity",
    "xlogy.Tensor",
    "erfinv"};
constexpr std::string_view kReductions[] = {
    "sum",
    "sum.dim_IntList",
    "mean",
    "mean.dim",
    "prod",
    "prod.dim_int",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "var",
    "var.dim",
    "var.correction",
    "std",
    "std.dim",
    "std.correction",
    "var_mean.correction",
    "std_mean.correction",
    "norm.Scalar",
    "norm.ScalarOpt_dim",
    "linalg_vector_norm",
    "linalg_matrix_norm",
    "dist",
    "trace"};

constexpr OpGroup kStrict[] = {
    {"exponentials overflow fp16 above 11 and cancel in 8 bits of bf16",
     kSoftmax},
    {"a loss is small and sums many terms", kLosses},
    {"a variance squares its inputs and sums them", kNorms},
    {"leaves the range of fp16 for ordinary inputs", kTranscendental},
    {"a 16-bit sum of many elements stops growing", kReductions}};

constexpr std::string_view kParameterOps[] = {
    "mul.Tensor",    "add.Tensor",
    "sub.Tensor",    "div.Tensor",
    "addcmul",       "embedding",
    "embedding_bag", "embedding_bag.padding_idx",
    "layer_norm",    "batch_norm",
    "group_norm",    "instance_norm",
    "rms_norm",      "bilinear",
    "prelu",         "lstm_cell",
    "gru_cell",      "rnn_tanh_cell",
    "rnn_relu_cell", "lstm.input",
    "gru.input",     "rnn_tanh.input",
    "rnn_relu.input"};

} // namespace

std::span<const std::string_view> stock_lower_precision(
    c10::DeviceType device) {
  if (device == c10::DeviceType::CUDA) {
    return kCudaLower;
  }
  return kCpuLower;
}

std::span<const std::string_view> stock_promote(c10::DeviceType device) {
  if (device == c10::DeviceType::CUDA) {
    return kCudaPromote;
  }
  return kCpuPromote;
}

std::span<const std::string_view> stock_refuse(c10::DeviceType device) {
  if (device == c10::DeviceType::CUDA) {
    return kCudaRefuse;
  }
  return {};
}

std::span<const OpGroup> strict_float32() {
  return kStrict;
}

std::span<const std::string_view> parameter_ops() {
  return kParameterOps;
}

} // namespace ampkit
