#include <ampkit/optim/update_bn.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

namespace ampkit::optim {
namespace {

/// A batch norm and what it had before.
struct BatchNorm {
  torch::nn::BatchNormOptions* options;
  std::optional<double> momentum;
  at::Tensor batches; // undefined if it has no statistics
  std::function<void()> reset;
};

template <class Impl>
bool add_if(torch::nn::Module& module, std::vector<BatchNorm>& found) {
  auto* norm = dynamic_cast<Impl*>(&module);
  if (norm == nullptr) {
    return false;
  }
  found.push_back(
      {&norm->options,
       norm->options.momentum(),
       norm->num_batches_tracked,
       [norm] { norm->reset_running_stats(); }});
  return true;
}

bool is_instance_norm(const torch::nn::Module& module) {
  using namespace torch::nn;
  return dynamic_cast<const InstanceNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const InstanceNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const InstanceNorm3dImpl*>(&module) != nullptr;
}

void check_has_no_statistics(const torch::nn::Module& module) {
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    TORCH_CHECK(
        !std::string_view(item.key()).ends_with("running_mean"),
        "update_bn: a submodule of type ",
        module.name(),
        " has a buffer '",
        item.key(),
        "'; only torch::nn::BatchNorm1d, 2d and 3d can be updated");
  }
}

std::vector<BatchNorm> batch_norms(torch::nn::Module& module) {
  std::vector<BatchNorm> found;
  module.apply([&](torch::nn::Module& m) {
    if (!add_if<torch::nn::BatchNorm1dImpl>(m, found) &&
        !add_if<torch::nn::BatchNorm2dImpl>(m, found) &&
        !add_if<torch::nn::BatchNorm3dImpl>(m, found) && !is_instance_norm(m)) {
      check_has_no_statistics(m);
    }
  });
  return found;
}

/// Parents first, as train() sets the submodules too.
std::vector<std::pair<torch::nn::Module*, bool>> modes(
    torch::nn::Module& module) {
  std::vector<std::pair<torch::nn::Module*, bool>> result;
  module.apply(
      [&](torch::nn::Module& m) { result.emplace_back(&m, m.is_training()); });
  return result;
}

void check_saw_batches(const std::vector<BatchNorm>& norms) {
  bool tracks = false;
  bool any = false;
  for (const BatchNorm& norm : norms) {
    tracks |= norm.batches.defined();
    any |= norm.batches.defined() && norm.batches.item<int64_t>() > 0; // waits
  }
  TORCH_CHECK(
      any || !tracks,
      "update_bn: the pass ran 0 batches through the module; its running "
      "statistics are reset");
}

} // namespace

void update_bn(torch::nn::Module& module, const std::function<void()>& pass) {
  const at::NoGradGuard no_grad;
  const auto norms = batch_norms(module);
  if (norms.empty()) {
    return;
  }
  const auto before = modes(module);
  const auto restore = [&] {
    for (const BatchNorm& norm : norms) {
      norm.options->momentum(norm.momentum);
    }
    for (const auto& [submodule, training] : before) {
      submodule->train(training);
    }
  };
  try {
    module.train();
    for (const BatchNorm& norm : norms) {
      norm.reset();
      norm.options->momentum(std::nullopt); // mean over all batches
    }
    pass();
  } catch (...) {
    restore();
    throw;
  }
  restore();
  check_saw_batches(norms);
}

} // namespace ampkit::optim
