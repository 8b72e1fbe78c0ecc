#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::zoo {

/// The sizes of a Gpt. The defaults are a model for tests, 0.1 million
/// parameters; the smallest GPT-2 is {.vocabulary = 50257, .width = 768,
/// .layers = 12, .heads = 12, .length = 1024}.
struct GptOptions {
  /// Tokens are in [0, vocabulary); >= 1.
  int64_t vocabulary = 256;
  /// Numbers that stand for a token between the layers; a multiple of `heads`.
  int64_t width = 64;
  /// Blocks of attention and MLP; >= 1.
  int64_t layers = 2;
  /// Attention heads of each block; >= 1.
  int64_t heads = 4;
  /// Most tokens of a sequence; >= 1.
  int64_t length = 64;
  /// Probability, in [0, 1), with which training drops embeddings, attention
  /// weights and the outputs of attention and MLP.
  double dropout = 0.0;
  /// The output layer uses the weight of the token embedding. Then it is no
  /// parameter of its own: the weight is listed once, as "wte.weight".
  bool tied_head = true;
  /// Backward computes the insides of each block again instead of keeping
  /// them: ampkit::checkpoint().
  bool recompute = false;
  /// Parts, at least 1, in which loss() does the output layer and the
  /// cross-entropy: more than 1 keep the logits of one part at a time, and
  /// backward computes them again. With GPT-2's vocabulary logits are most of
  /// what a step holds. As torchtune's num_output_chunks.
  int64_t loss_chunks = 1;
};

/// GPT-2 as a plain torch::nn::Module; its holder is Gpt.
///
///     Gpt gpt(GptOptions{.layers = 4});
///     auto loss = gpt->loss(tokens, targets);
///
/// Names are those of Hugging Face's transformers without "transformer.":
/// wte, wpe, h.0.ln_1, h.0.attn.c_attn, h.0.attn.c_proj, h.0.ln_2,
/// h.0.mlp.c_fc, h.0.mlp.c_proj, ..., ln_f, and lm_head unless tied. The
/// projections are nn::Linear, weight [out, in], where transformers has its
/// Conv1D, [in, out]: load_transformers_state() turns them.
///
/// Initial weights are GPT-2's, drawn from LibTorch's CPU generator: normal
/// with deviation 0.02, in c_proj 0.02 / sqrt(2 * layers); biases 0.
///
/// Source: Radford et al. (2019), "Language Models are Unsupervised Multitask
/// Learners".
class AMPKIT_API GptImpl : public torch::nn::Module {
 public:
  /// Throws c10::ValueError, naming the field, if an option is out of range.
  explicit GptImpl(const GptOptions& options = {});

  /// `tokens`: int64 [batch, n], 1 <= n <= length. Returns the logits of the
  /// next tokens, [batch, n, vocabulary]. Throws c10::ValueError for any other
  /// shape or dtype.
  at::Tensor forward(const at::Tensor& tokens);

  /// Mean cross-entropy, a scalar, of forward(tokens) and `targets`, int64 of
  /// the same shape: targets[b][i] is what follows tokens[b][i]. Targets of
  /// -100 don't count. Throws as forward() does. With `loss_chunks` above 1 the
  /// same to the rounding of a sum taken in parts.
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets);

  const GptOptions& options() const { return options_; }

 private:
  struct Parts;

  void initialise();
  at::Tensor hidden(const at::Tensor& tokens);

  GptOptions options_;
  std::shared_ptr<Parts> parts_;
};

TORCH_MODULE(Gpt);

/// Copies the weights of transformers' GPT2LMHeadModel, or GPT2Model, into
/// `gpt`: with or without "transformer." before the names, Conv1D weights
/// turned, the causal masks of older files ("attn.bias", "attn.masked_bias")
/// left out. A tied head may be in `state` or not.
///
/// Throws c10::Error, having changed nothing, with the list of all that does
/// not fit, as io::load_module_state() does; or if `gpt` has a tied head and
/// `state` another one.
AMPKIT_API void load_transformers_state(
    GptImpl& gpt, const io::StateDict& state);

} // namespace ampkit::zoo
