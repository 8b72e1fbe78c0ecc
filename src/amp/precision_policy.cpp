#include <ampkit/amp/precision_policy.h>

#include <array>
#include <span>

#include <ampkit/io/nearest_name.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace ampkit {
namespace {

struct Line {
  const char* name; // of an op, or a pattern of module paths
  const char* reason;
};

constexpr std::array kNorms{
    Line{
        "batch_norm",
        "its statistics are averages of many small differences, and channels "
        "with a small variance are divided by it"},
    Line{
        "layer_norm",
        "the variance over the features cancels in 8 or 11 bits, and the "
        "result is what every later layer starts from"},
    Line{"native_layer_norm", "what layer_norm is made of; called directly"},
    Line{
        "group_norm",
        "groups are small, so that one large activation decides the variance"},
    Line{
        "instance_norm",
        "a flat image has a variance near 0, below what fp16 can tell apart"},
    Line{
        "rms_norm",
        "squares of activations above 255 are beyond the range of fp16"}};

constexpr std::array kSoftmax{
    Line{
        "softmax",
        "probabilities of a long row are small: fp16 drops them below 6e-8, "
        "bf16 has 3 digits for their sum"},
    Line{
        "log_softmax",
        "a logarithm near 0 or far from it loses what the loss is made of"},
    Line{"logsumexp", "exp overflows fp16 above 11, and its sum earlier"}};

constexpr const char* kLongSum =
    "a sum over thousands of frames stops growing in 16 bits: 2048 + 1 is "
    "2048 in fp16, 256 + 1 is 256 in bf16";

constexpr std::array kSpeech{
    Line{
        "ctc_loss", "adds up log-probabilities over all frames and alignments"},
    Line{"sum", kLongSum},
    Line{"mean", kLongSum},
    Line{"cumsum", kLongSum},
    Line{"logcumsumexp", "a running sum of exponentials"},
    Line{"var", "squares and adds over all frames: normalised features"},
    Line{"std", "squares and adds over all frames: normalised features"},
    Line{"linalg_vector_norm", "squares and adds over all frames"}};

// One line for each way to call the layer that leaves a feed-forward block.
constexpr std::array kFeedForwardOutput{
    Line{"**.mlp.c_proj", "GPT-2"},
    Line{"**.mlp.down_proj", "Llama, Mistral, Qwen, Gemma"},
    Line{"**.mlp.dense_4h_to_h", "GPT-NeoX, BLOOM, Falcon"},
    Line{"**.fc2", "OPT, BART, Whisper, vision transformers"},
    Line{"**.layer.*.output.dense", "BERT, RoBERTa, ViT of transformers"},
    Line{"**.DenseReluDense.wo", "T5"},
    Line{"**.ffn.lin2", "DistilBERT, XLM"},
    Line{"**.ffn.down", "ffn with up and down"},
    Line{"**.ffn.w2", "ffn with w1, w2 and w3"},
    Line{"**.feed_forward.w2", "Llama as published by Meta"},
    Line{"**.feed_forward.w_2", "The Annotated Transformer"},
    Line{"**.linear2", "torch::nn::TransformerEncoderLayer"}};

void add_ops(PrecisionPolicy& policy, std::span<const Line> lines) {
  for (const Line& line : lines) {
    policy.ops.set(line.name, OpRule::float32, line.reason);
  }
}

void add_feed_forward_output(PrecisionPolicy& policy) {
  for (const Line& line : kFeedForwardOutput) {
    policy.modules.set(
        {.pattern = line.name,
         .dtype = at::kFloat,
         .reason = std::string("sums over the widest dimension and is added to "
                               "the residual: the first to pass 65504; so "
                               "named in ") +
                   line.reason,
         .optional = true});
  }
}

} // namespace

const std::vector<std::string>& PrecisionPolicy::preset_names() {
  static const std::vector<std::string> names{
      "pytorch", "strict", "cv", "nlp", "speech"};
  return names;
}

PrecisionPolicy PrecisionPolicy::preset(std::string_view name) {
  PrecisionPolicy policy;
  if (name == "pytorch" || name == "strict") {
    policy.ops = OpPolicy::parse(name);
    return policy;
  }
  if (name == "cv") {
    add_ops(policy, kNorms);
    return policy;
  }
  const auto guess = nearest_name(std::string(name), preset_names());
  TORCH_CHECK_VALUE(
      name == "nlp" || name == "speech",
      "PrecisionPolicy::preset: unknown policy '",
      name,
      "'",
      guess.empty() ? "" : ", did you mean '" + guess + "'?",
      "; valid are ",
      c10::Join(", ", preset_names()));
  add_ops(policy, kNorms);
  add_ops(policy, kSoftmax);
  if (name == "nlp") {
    add_feed_forward_output(policy);
  } else {
    add_ops(policy, kSpeech);
  }
  return policy;
}

namespace {

template <class Module>
AutocastOptions options(const PrecisionPolicy& policy, const Module& module) {
  AutocastOptions result{.ops = policy.ops};
  if (!policy.modules.rules().empty()) {
    result.modules = policy.modules.bind(module);
  }
  return result;
}

} // namespace

AutocastOptions PrecisionPolicy::bind(const torch::nn::Module& module) const {
  return options(*this, module);
}

AutocastOptions PrecisionPolicy::bind(const torch::jit::Module& module) const {
  return options(*this, module);
}

} // namespace ampkit
