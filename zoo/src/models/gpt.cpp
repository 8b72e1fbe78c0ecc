#include <ampkit/zoo/models/gpt.h>

#include <cmath>
#include <string>
#include <string_view>

#include <torch/torch.h>

#include <ampkit/amp/recompute.h>
#include <ampkit/io/module_state.h>

namespace ampkit::zoo {
namespace {

namespace nn = torch::nn;

// What cross_entropy_loss() leaves out by default.
constexpr int64_t kNotCounted = -100;

nn::LayerNorm layer_norm(int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

void check_positive(const char* field, int64_t value) {
  TORCH_CHECK_VALUE(value >= 1, "Gpt: ", field, " must be >= 1, got ", value);
}

GptOptions checked(const GptOptions& options) {
  check_positive("vocabulary", options.vocabulary);
  check_positive("width", options.width);
  check_positive("layers", options.layers);
  check_positive("heads", options.heads);
  check_positive("length", options.length);
  TORCH_CHECK_VALUE(
      options.width % options.heads == 0,
      "Gpt: width must be a multiple of heads, got ",
      options.width,
      " and ",
      options.heads);
  check_positive("loss_chunks", options.loss_chunks);
  TORCH_CHECK_VALUE(
      options.dropout >= 0 && options.dropout < 1,
      "Gpt: dropout must be in [0, 1), got ",
      options.dropout);
  return options;
}

class Attention : public nn::Module {
 public:
  explicit Attention(const GptOptions& o)
      : heads_(o.heads), dropout_(o.dropout) {
    c_attn_ = register_module("c_attn", nn::Linear(o.width, 3 * o.width));
    c_proj_ = register_module("c_proj", nn::Linear(o.width, o.width));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0);
    const auto length = x.size(1);
    const auto qkv = c_attn_->forward(x)
                         .view({batch, length, 3, heads_, -1})
                         .permute({2, 0, 3, 1, 4});
    const auto y = at::scaled_dot_product_attention(
        qkv[0],
        qkv[1],
        qkv[2],
        {},
        is_training() ? dropout_ : 0.0,
        /*is_causal=*/true);
    const auto joined = y.transpose(1, 2).reshape({batch, length, -1});
    return at::dropout(c_proj_->forward(joined), dropout_, is_training());
  }

 private:
  int64_t heads_;
  double dropout_;
  nn::Linear c_attn_{nullptr};
  nn::Linear c_proj_{nullptr};
};

class Mlp : public nn::Module {
 public:
  explicit Mlp(const GptOptions& o) : dropout_(o.dropout) {
    c_fc_ = register_module("c_fc", nn::Linear(o.width, 4 * o.width));
    c_proj_ = register_module("c_proj", nn::Linear(4 * o.width, o.width));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = at::gelu(c_fc_->forward(x), "tanh");
    return at::dropout(c_proj_->forward(hidden), dropout_, is_training());
  }

 private:
  double dropout_;
  nn::Linear c_fc_{nullptr};
  nn::Linear c_proj_{nullptr};
};

class Block : public nn::Module {
 public:
  explicit Block(const GptOptions& o)
      : ln_1_(register_module("ln_1", layer_norm(o.width))),
        attn_(register_module("attn", std::make_shared<Attention>(o))),
        ln_2_(register_module("ln_2", layer_norm(o.width))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(o))) {}

  at::Tensor forward(at::Tensor x) {
    x = x + attn_->forward(ln_1_->forward(x));
    return x + mlp_->forward(ln_2_->forward(x));
  }

 private:
  nn::LayerNorm ln_1_;
  std::shared_ptr<Attention> attn_;
  nn::LayerNorm ln_2_;
  std::shared_ptr<Mlp> mlp_;
};

bool is_causal_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

bool is_conv1d_weight(std::string_view name) {
  return name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") ||
         name.ends_with(".c_fc.weight");
}

void check_tied_head(const io::StateDict& state, const io::StateValue& head) {
  const auto* wte = state.find("wte.weight");
  const auto* first = wte ? std::get_if<at::Tensor>(wte) : nullptr;
  const auto* second = std::get_if<at::Tensor>(&head);
  TORCH_CHECK(
      first == nullptr || second == nullptr ||
          (first->scalar_type() == second->scalar_type() &&
           first->equal(*second)),
      "load_transformers_state: the head is tied, but lm_head.weight differs "
      "from wte.weight; set tied_head = false");
}

} // namespace

struct GptImpl::Parts {
  nn::Embedding wte{nullptr};
  nn::Embedding wpe{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  nn::LayerNorm ln_f{nullptr};
  nn::Linear lm_head{nullptr}; // null: tied

  at::Tensor logits(const at::Tensor& x) {
    return lm_head ? lm_head->forward(x) : at::linear(x, wte->weight);
  }
};

// Modules are made in the order of their names: the sequence of random numbers
// depends on it.
GptImpl::GptImpl(const GptOptions& options)
    : torch::nn::Module("Gpt"),
      options_(checked(options)),
      parts_(std::make_shared<Parts>()) {
  auto& parts = *parts_;
  const auto width = options.width;
  parts.wte = register_module("wte", nn::Embedding(options.vocabulary, width));
  parts.wpe = register_module("wpe", nn::Embedding(options.length, width));
  const auto h = register_module("h", nn::ModuleList());
  for (int64_t i = 0; i < options.layers; ++i) {
    parts.blocks.push_back(std::make_shared<Block>(options));
    h->push_back(parts.blocks.back());
  }
  parts.ln_f = register_module("ln_f", layer_norm(width));
  if (!options.tied_head) {
    parts.lm_head = register_module(
        "lm_head",
        nn::Linear(nn::LinearOptions(width, options.vocabulary).bias(false)));
  }
  initialise();
}

void GptImpl::initialise() {
  const at::NoGradGuard no_grad;
  const double residual =
      0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers));
  for (const auto& item : named_parameters()) {
    auto parameter = item.value();
    if (parameter.dim() == 2) {
      const bool projects = item.key().ends_with("c_proj.weight");
      parameter.normal_(0.0, projects ? residual : 0.02);
    } else if (item.key().ends_with("bias")) {
      parameter.zero_();
    }
  }
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  return parts_->logits(hidden(tokens));
}

at::Tensor GptImpl::hidden(const at::Tensor& tokens) {
  TORCH_CHECK_VALUE(
      tokens.dim() == 2 && tokens.scalar_type() == at::kLong &&
          tokens.size(1) >= 1 && tokens.size(1) <= options_.length,
      "Gpt::forward: tokens must be int64 [batch, n] with 1 <= n <= ",
      options_.length,
      ", got ",
      tokens.scalar_type(),
      " ",
      tokens.sizes());
  auto& parts = *parts_;
  const auto positions = parts.wpe->weight.narrow(0, 0, tokens.size(1));
  auto x = at::dropout(
      parts.wte->forward(tokens) + positions, options_.dropout, is_training());
  for (const auto& block : parts.blocks) {
    const auto call = [block](const at::Tensor& y) {
      return block->forward(y);
    };
    x = options_.recompute ? checkpoint(call, x) : call(x);
  }
  return parts.ln_f->forward(x);
}

at::Tensor GptImpl::loss(const at::Tensor& tokens, const at::Tensor& targets) {
  TORCH_CHECK_VALUE(
      targets.sizes() == tokens.sizes() && targets.scalar_type() == at::kLong,
      "Gpt::loss: targets must be int64 ",
      tokens.sizes(),
      " like tokens, got ",
      targets.scalar_type(),
      " ",
      targets.sizes());
  const auto x = hidden(tokens).flatten(0, 1);
  const auto flat = targets.flatten();
  if (options_.loss_chunks == 1) {
    return at::cross_entropy_loss(parts_->logits(x), flat);
  }
  const auto sum_of_part = [parts = parts_](
                               const at::Tensor& part, const at::Tensor& of) {
    return at::cross_entropy_loss(
        parts->logits(part), of, /*weight=*/{}, at::Reduction::Sum);
  };
  // Not narrow(): its backward would fill a whole gradient for each part.
  const auto inputs = x.chunk(options_.loss_chunks);
  const auto labels = flat.chunk(options_.loss_chunks);
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < inputs.size(); ++i) {
    sums.push_back(checkpoint(sum_of_part, inputs[i], labels[i]));
  }
  return at::stack(sums).sum() / flat.ne(kNotCounted).sum();
}

void load_transformers_state(GptImpl& gpt, const io::StateDict& state) {
  constexpr std::string_view kPrefix = "transformer.";
  io::StateDict converted;
  for (const auto& [name, value] : state.entries()) {
    const auto ours =
        name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor != nullptr && tensor->dim() == 2 && is_conv1d_weight(ours)) {
      converted.set(ours, tensor->t());
    } else if (!is_causal_mask(ours)) {
      converted.set(ours, value);
    }
  }
  if (const auto* head = converted.find("lm_head.weight");
      head != nullptr && gpt.options().tied_head) {
    check_tied_head(converted, *head);
    io::StateDict without_head;
    for (const auto& [name, value] : converted.entries()) {
      // A state may have the weight under this name only.
      without_head.set(name == "lm_head.weight" ? "wte.weight" : name, value);
    }
    converted = without_head;
  }
  io::load_module_state(gpt, converted);
}

} // namespace ampkit::zoo
