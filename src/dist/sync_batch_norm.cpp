#include <ampkit/dist/sync_batch_norm.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ops/batch_norm_native.h>
#include <ampkit/amp/script_module.h>
#include <torch/library.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dist/context_impl.h"

namespace ampkit::dist {
namespace {

using c10d::ProcessGroup;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Group = c10::intrusive_ptr<ProcessGroup>;

// [n, channels, ...] as [channels, n * ...], in FP32 at least.
at::Tensor by_channel(const at::Tensor& values) {
  const auto type =
      values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return values.transpose(0, 1).reshape({values.size(1), -1}).to(type);
}

// As a channel's factor for a tensor of `values`' shape.
at::Tensor along_channels(const at::Tensor& vector, const at::Tensor& values) {
  std::vector<int64_t> shape(static_cast<size_t>(values.dim()), 1);
  shape[1] = values.size(1);
  return vector.view(shape);
}

// Each rank's row, on all ranks.
at::Tensor gather_rows(const Group& group, const at::Tensor& row) {
  std::vector<at::Tensor> mine{row};
  std::vector<std::vector<at::Tensor>> rows(1);
  for (int rank = 0; rank < group->getSize(); ++rank) {
    rows[0].push_back(at::empty_like(row));
  }
  group->allgather(rows, mine)->wait();
  return at::stack(rows[0]);
}

/// Over the values of all ranks; [channels], float64.
struct ChannelStatistics {
  at::Tensor mean;
  at::Tensor squares; // sum of squared distances from the mean
  double count = 0; // values a channel
};

// From each rank's own, as Chan et al. combine them: no difference of large
// sums.
ChannelStatistics statistics_of_ranks(
    const Group& group, const at::Tensor& input) {
  const auto values = by_channel(input);
  const auto channels = values.size(0);
  const auto count = static_cast<double>(values.size(1));
  auto row = at::zeros({2 * channels + 1}, at::kDouble);
  row[-1] = count;
  if (count > 0) {
    const auto mean = values.mean(1, true);
    row.narrow(0, 0, channels).copy_(mean.squeeze(1));
    row.narrow(0, channels, channels).copy_((values - mean).square_().sum(1));
  }
  const auto all = gather_rows(group, row);
  const auto counts = all.select(1, 2 * channels).unsqueeze(1);
  const auto means = all.narrow(1, 0, channels);
  ChannelStatistics result;
  result.count = counts.sum().item<double>();
  result.mean = (means * counts).sum(0) / result.count;
  result.squares = all.narrow(1, channels, channels).sum(0) +
                   ((means - result.mean).square() * counts).sum(0);
  return result;
}

void update_running(
    const std::optional<at::Tensor>& running,
    const at::Tensor& now,
    double momentum) {
  if (running && running->defined()) {
    running->mul_(1 - momentum).add_(now.to(running->scalar_type()), momentum);
  }
}

struct SyncBatchNormFunction
    : public torch::autograd::Function<SyncBatchNormFunction> {
  static at::Tensor forward(
      AutogradContext* ctx,
      const at::Tensor& input,
      const std::optional<at::Tensor>& given_weight,
      const std::optional<at::Tensor>& given_bias,
      const std::optional<at::Tensor>& running_mean,
      const std::optional<at::Tensor>& running_var,
      double momentum,
      double eps,
      const Group& group) {
    const auto weight = given_weight.value_or(at::Tensor());
    const auto bias = given_bias.value_or(at::Tensor());
    const auto found = statistics_of_ranks(group, input);
    TORCH_CHECK(
        found.count > 1,
        "sync_batch_norm: all ranks together must have more than 1 value a "
        "channel when training, got an input of ",
        input.sizes());
    update_running(running_mean, found.mean, momentum);
    update_running(running_var, found.squares / (found.count - 1), momentum);
    const auto scale = (found.squares / found.count + eps).rsqrt();
    ctx->save_for_backward({input, weight, found.mean, scale});
    ctx->saved_data["count"] = found.count;
    ctx->saved_data["group"] = c10::IValue::make_capsule(group);
    // y = x * factor + shift
    auto factor = weight.defined() ? scale * weight.detach() : scale;
    auto shift = -found.mean * factor;
    if (bias.defined()) {
      shift = shift + bias.detach();
    }
    const auto type =
        input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return (input.to(type) * along_channels(factor, input).to(type) +
            along_channels(shift, input).to(type))
        .to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto& input = saved[0];
    const auto& weight = saved[1];
    const auto& mean = saved[2];
    const auto& scale = saved[3];
    const auto group = c10::static_intrusive_pointer_cast<ProcessGroup>(
        ctx->saved_data["group"].toCapsule());
    const auto count = ctx->saved_data["count"].toDouble();
    const auto gradient = by_channel(gradients[0]);
    const auto type = gradient.scalar_type();
    const auto centred = by_channel(input) - mean.to(type).unsqueeze(1);
    const auto sum = gradient.sum(1);
    const auto product = (gradient * centred).sum(1);
    auto means = at::cat({sum, product}).to(at::kDouble);
    std::vector<at::Tensor> reduced{means};
    group->allreduce(reduced)->wait();
    means = means / count;
    const auto channels = sum.size(0);
    const auto factor = weight.defined() ? scale * weight : scale;
    const auto slope = means.narrow(0, channels, channels) * scale.square();
    const auto result =
        (gradient - means.narrow(0, 0, channels).to(type).unsqueeze(1) -
         centred * slope.to(type).unsqueeze(1)) *
        factor.to(type).unsqueeze(1);
    // Back from [channels, n * ...].
    auto shape = input.sizes().vec();
    std::swap(shape[0], shape[1]);
    variable_list all(8);
    all[0] = result.view(shape).transpose(0, 1).to(input.scalar_type());
    if (weight.defined()) {
      all[1] = (product * scale.to(type)).to(weight.scalar_type());
      all[2] = sum.to(weight.scalar_type());
    }
    return all;
  }
};

at::Tensor normalise(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    double momentum,
    double eps,
    const Group& group) {
  TORCH_CHECK_VALUE(
      input.dim() >= 2,
      "sync_batch_norm: input must be [n, channels, ...], got ",
      input.sizes());
  const auto maybe = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return SyncBatchNormFunction::apply(
      input,
      maybe(weight),
      maybe(bias),
      maybe(running_mean),
      maybe(running_var),
      momentum,
      eps,
      group);
}

/// By a tensor that belongs to it, the group of each converted norm.
class ConvertedNorms {
 public:
  static ConvertedNorms& instance() {
    static ConvertedNorms norms;
    return norms;
  }

  void add(
      const at::Tensor& key, const std::shared_ptr<Context::Impl>& context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(groups_, [](const auto& item) {
      return item.second.tensor.expired() || item.second.context.expired();
    });
    groups_.insert_or_assign(
        key.unsafeGetTensorImpl(),
        Entry{
            c10::weak_intrusive_ptr<c10::TensorImpl>(key.getIntrusivePtr()),
            context});
  }

  /// Null: not converted.
  Group find(const at::Tensor& key) {
    if (!key.defined()) {
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = groups_.find(key.unsafeGetTensorImpl());
    // Another tensor may lie where an earlier one was.
    if (found == groups_.end() || found->second.tensor.expired()) {
      return {};
    }
    const auto context = found->second.context.lock();
    TORCH_CHECK(
        context,
        "convert_sync_batchnorm: the context that this batch norm was "
        "converted "
        "with is gone; keep it as long as the module trains");
    return context->group;
  }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::weak_ptr<Context::Impl> context;
  };
  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Entry> groups_;
};

at::Tensor batch_norm_of_ranks(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  if (training) {
    const auto mean = running_mean.value_or(at::Tensor());
    const auto scale = weight.value_or(at::Tensor());
    const auto group =
        ConvertedNorms::instance().find(mean.defined() ? mean : scale);
    if (group && group->getSize() > 1) {
      return normalise(
          input,
          scale,
          bias.value_or(at::Tensor()),
          mean,
          running_var.value_or(at::Tensor()),
          momentum,
          eps,
          group);
    }
  }
  return at::native::batch_norm(
      input,
      weight,
      bias,
      running_mean,
      running_var,
      training,
      momentum,
      eps,
      cudnn_enabled);
}

// In place of the composite op, for the rest of the process, once a norm was
// converted. For all others it calls that op.
void install_batch_norm() {
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(
        torch::Library::IMPL,
        "aten",
        c10::DispatchKey::AutogradCPU,
        __FILE__,
        __LINE__);
    made->impl("batch_norm", &batch_norm_of_ranks);
    return made;
  }();
}

template <class Norm>
bool key_of_norm(const torch::nn::Module& module, at::Tensor& key) {
  const auto* norm = dynamic_cast<const Norm*>(&module);
  if (norm != nullptr) {
    key = norm->running_mean.defined() ? norm->running_mean : norm->weight;
  }
  return norm != nullptr;
}

bool has_batch_norm(const torch::nn::Module& module, at::Tensor& key) {
  using namespace torch::nn;
  if (key_of_norm<BatchNorm1dImpl>(module, key) ||
      key_of_norm<BatchNorm2dImpl>(module, key) ||
      key_of_norm<BatchNorm3dImpl>(module, key)) {
    return true;
  }
  return false;
}

// Its own modules are TorchScript's, of which only the buffers show.
std::vector<at::Tensor> running_means(const ScriptModule& script) {
  std::vector<at::Tensor> found;
  for (const auto& item : script.named_buffers()) {
    if (item.key().ends_with("running_mean")) {
      found.push_back(item.value());
    }
  }
  return found;
}

} // namespace

int64_t convert_sync_batchnorm(
    torch::nn::Module& module, const Context& context) {
  std::vector<at::Tensor> keys;
  for (const auto& item : module.named_modules()) {
    at::Tensor key;
    if (has_batch_norm(*item.value(), key)) {
      TORCH_CHECK_VALUE(
          key.defined(),
          "convert_sync_batchnorm: '",
          item.key(),
          "' has neither running statistics nor weights, by which it could be "
          "known; give it one");
      keys.push_back(key);
    }
    if (const auto* script =
            dynamic_cast<const ScriptModule*>(item.value().get())) {
      for (const auto& mean : running_means(*script)) {
        keys.push_back(mean);
      }
    }
  }
  install_batch_norm();
  for (const auto& key : keys) {
    ConvertedNorms::instance().add(key, ContextAccess::impl(context));
  }
  return static_cast<int64_t>(keys.size());
}

at::Tensor sync_batch_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    double momentum,
    double eps,
    const Context& context) {
  return normalise(
      input,
      weight,
      bias,
      running_mean,
      running_var,
      momentum,
      eps,
      context.process_group());
}

} // namespace ampkit::dist
