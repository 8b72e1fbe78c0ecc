#include <ampkit/amp/cast_parameters.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/rnn.h>

#include "amp/norm_layers.h"
#include "amp/path_pattern.h"

namespace ampkit {
namespace {

/// A module without those below it.
struct Part {
  std::string path; // "" is the root
  bool is_norm = false;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

/// Tensors over one memory, to be cast together.
struct Member {
  std::string name;
  std::vector<at::Tensor> tensors;
  at::ScalarType target = at::ScalarType::Undefined;
  bool is_parameter = false;
};

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

void collect(
    const torch::nn::Module& module,
    const std::string& path,
    std::vector<Part>& parts) {
  Part part{.path = path, .is_norm = is_norm_layer(module)};
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    part.parameters.emplace_back(join(path, item.key()), item.value());
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    part.buffers.emplace_back(join(path, item.key()), item.value());
  }
  parts.push_back(std::move(part));
  for (const auto& item : module.named_children()) {
    if (item.value() != nullptr) {
      collect(*item.value(), join(path, item.key()), parts);
    }
  }
}

std::vector<Part> parts_of(const torch::jit::Module& module) {
  std::vector<Part> parts;
  for (const auto& [path, child] : module.named_modules()) {
    const auto type = child.type()->name();
    Part part{
        .path = path,
        .is_norm =
            type.has_value() && names_a_norm_layer(type->qualifiedName())};
    for (const auto& [name, tensor] : child.named_parameters(false)) {
      part.parameters.emplace_back(join(path, name), tensor);
    }
    for (const auto& [name, tensor] : child.named_buffers(false)) {
      part.buffers.emplace_back(join(path, name), tensor);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

bool is_kept(const Part& part, const CastParametersOptions& options) {
  return (part.is_norm && options.keep_norm_layers_fp32) ||
         std::ranges::any_of(options.keep_fp32, [&](const auto& pattern) {
           return matches_path(pattern, part.path);
         });
}

std::string first_paths(const std::vector<Part>& parts) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), kShown); ++i) {
    text += (i > 0 ? ", '" : "'") + parts[i].path + "'";
  }
  return parts.size() > kShown ? text + ", ..." : text;
}

void check_patterns(
    const std::vector<Part>& parts, const CastParametersOptions& options) {
  for (const std::string& pattern : options.keep_fp32) {
    const auto is_named = [&](const Part& part) {
      return matches_path(pattern, part.path);
    };
    TORCH_CHECK_VALUE(
        is_path_pattern(pattern) && std::ranges::any_of(parts, is_named),
        "cast_parameters: keep_fp32 must name modules, got '",
        pattern,
        "', which matches none of ",
        first_paths(parts));
  }
}

void check_precision(const char* field, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat ||
          dtype == at::kDouble,
      "cast_parameters: precision.",
      field,
      " must be Half, BFloat16, Float or Double, got ",
      dtype);
}

/// The members of a module, each memory once.
class Members {
 public:
  void add(
      const std::string& name,
      const at::Tensor& tensor,
      at::ScalarType target,
      bool is_parameter) {
    if (!tensor.defined() || !tensor.is_floating_point() ||
        tensor.element_size() < 2) {
      return;
    }
    const auto [place, is_new] = index_.emplace(key_of(tensor), all_.size());
    if (is_new) {
      all_.push_back({.name = name, .target = target});
    }
    Member& member = all_[place->second];
    if (!contains(member, tensor)) {
      member.tensors.push_back(tensor);
    }
    member.is_parameter = member.is_parameter || is_parameter;
    if (target == at::kFloat) { // kept by one of the modules that hold it
      member.target = target;
    }
  }

  /// Those that are not in their dtype yet.
  std::vector<Member> to_change() const {
    std::vector<Member> result;
    std::ranges::copy_if(all_, std::back_inserter(result), [](const Member& m) {
      return m.tensors.front().scalar_type() != m.target;
    });
    return result;
  }

 private:
  using Key = std::tuple<
      const void*,
      std::vector<int64_t>,
      std::vector<int64_t>,
      at::ScalarType>;

  static Key key_of(const at::Tensor& tensor) {
    const bool has_memory = tensor.has_storage() && tensor.numel() > 0 &&
                            tensor.const_data_ptr() != nullptr;
    if (!has_memory) {
      return {tensor.unsafeGetTensorImpl(), {}, {}, tensor.scalar_type()};
    }
    return {
        tensor.const_data_ptr(),
        tensor.sizes().vec(),
        tensor.strides().vec(),
        tensor.scalar_type()};
  }

  static bool contains(const Member& member, const at::Tensor& tensor) {
    return std::ranges::any_of(member.tensors, [&](const auto& known) {
      return known.is_same(tensor);
    });
  }

  std::map<Key, size_t> index_;
  std::vector<Member> all_;
};

std::vector<Member> members_to_change(
    const std::vector<Part>& parts,
    const Precision& precision,
    const CastParametersOptions& options) {
  Members members;
  for (const Part& part : parts) {
    const bool kept = is_kept(part, options);
    const auto of_parameters = kept ? at::kFloat : precision.parameters;
    const auto of_buffers = part.is_norm ? of_parameters
                            : kept       ? at::kFloat
                                         : precision.buffers;
    for (const auto& [name, tensor] : part.parameters) {
      members.add(name, tensor, of_parameters, true);
    }
    for (const auto& [name, tensor] : part.buffers) {
      members.add(name, tensor, of_buffers, false);
    }
  }
  return members.to_change();
}

void check_no_gradient(const Member& member) {
  for (const at::Tensor& tensor : member.tensors) {
    TORCH_CHECK(
        !member.is_parameter || !tensor.grad().defined(),
        "cast_parameters: parameter '",
        member.name,
        "' has a gradient, which would stay ",
        tensor.scalar_type(),
        " while the parameter becomes ",
        member.target,
        "; call zero_grad() first");
  }
}

DtypeChange change(const Member& member) {
  const auto from = member.tensors.front().scalar_type();
  const at::Tensor cast = member.tensors.front().detach().to(member.target);
  for (const at::Tensor& tensor : member.tensors) {
    tensor.set_data(cast);
    // Graphs that saved it must not go on with the new dtype.
    tensor.unsafeGetTensorImpl()->bump_version();
  }
  return {.name = member.name, .from = from, .to = member.target};
}

std::vector<DtypeChange> cast_parts(
    const std::vector<Part>& parts,
    const Precision& precision,
    const CastParametersOptions& options) {
  check_precision("parameters", precision.parameters);
  check_precision("buffers", precision.buffers);
  check_patterns(parts, options);
  const auto members = members_to_change(parts, precision, options);
  std::ranges::for_each(members, check_no_gradient);
  std::vector<DtypeChange> changes;
  changes.reserve(members.size());
  std::ranges::transform(members, std::back_inserter(changes), change);
  return changes;
}

// On CUDA the weights of a recurrent layer are one block of memory.
void flatten_weights(torch::nn::Module& module) {
  if (auto* rnn = module.as<torch::nn::RNN>()) {
    rnn->flatten_parameters();
  } else if (auto* lstm = module.as<torch::nn::LSTM>()) {
    lstm->flatten_parameters();
  } else if (auto* gru = module.as<torch::nn::GRU>()) {
    gru->flatten_parameters();
  }
}

} // namespace

std::vector<DtypeChange> cast_parameters(
    torch::nn::Module& module,
    const Precision& precision,
    const CastParametersOptions& options) {
  std::vector<Part> parts;
  collect(module, "", parts);
  auto changes = cast_parts(parts, precision, options);
  module.apply(flatten_weights);
  return changes;
}

std::vector<DtypeChange> cast_parameters(
    torch::jit::Module& module,
    const Precision& precision,
    const CastParametersOptions& options) {
  return cast_parts(parts_of(module), precision, options);
}

} // namespace ampkit
