#include <ampkit/dist/distributed_data_parallel.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ampkit/dist/agreement.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "dist/context_impl.h"
#include "dist/parameter_checksum.h"
#include "dist/reduce_hook.h"

namespace ampkit::dist {
namespace {

// As PyTorch's: how much is sent at once at the start, and of buffers.
constexpr size_t kBroadcastBytes = 250 << 20;

/// The tensors of a module, each once, however many names it has.
struct ModuleTensors {
  explicit ModuleTensors(const torch::nn::Module& module) {
    std::unordered_set<const c10::TensorImpl*> seen;
    for (const auto& item : module.named_parameters()) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) {
        continue;
      }
      all.push_back(item.value().detach());
      if (item.value().requires_grad()) {
        trained.push_back(item.value());
        names.push_back(item.key());
      }
    }
    for (const auto& buffer : module.buffers()) {
      if (buffer.defined() &&
          seen.insert(buffer.unsafeGetTensorImpl()).second) {
        buffers.push_back(buffer);
        all.push_back(buffer.detach());
      }
    }
  }

  std::vector<at::Tensor> trained;
  std::vector<std::string> names; // of `trained`
  std::vector<at::Tensor> buffers;
  std::vector<at::Tensor> all; // and frozen parameters
};

void check_bytes(const char* name, int64_t value) {
  TORCH_CHECK_VALUE(
      value > 0,
      "DistributedDataParallel: ",
      name,
      " must be > 0, got ",
      value);
}

} // namespace

void DistributedDataParallelOptions::check() const {
  check_bytes("bucket_bytes", bucket_bytes);
  check_bytes("first_bucket_bytes", first_bucket_bytes);
  TORCH_CHECK_VALUE(
      checksum_every >= 0,
      "DistributedDataParallel: checksum_every must be >= 0, got ",
      checksum_every);
  TORCH_CHECK_VALUE(
      !reduce_dtype || c10::isFloatingType(*reduce_dtype),
      "DistributedDataParallel: reduce_dtype must be floating point, got ",
      reduce_dtype.value_or(c10::ScalarType::Float));
}

struct DistributedDataParallel::Impl {
  Impl(
      const torch::nn::Module& module,
      const Context& given_context,
      const DistributedDataParallelOptions& given_options)
      : options(given_options), context(given_context), tensors(module) {
    TORCH_CHECK_VALUE(
        !tensors.trained.empty(),
        "DistributedDataParallel: the module must have parameters that require "
        "gradients, got 0");
    const auto& group = context.process_group();
    c10d::verify_params_across_processes(group, tensors.trained, std::nullopt);
    {
      const at::NoGradGuard no_grad;
      c10d::broadcast_coalesced(group, tensors.all, kBroadcastBytes, 0);
    }
    make_reducer();
  }

  void make_reducer();
  void share_buffers() const;
  [[noreturn]] void report_unused(const c10::Error& error) const;
  void delay_first_reduction(const std::vector<at::Tensor>& outputs);
  void weigh_gradients();

  DistributedDataParallelOptions options;
  Context context;
  ModuleTensors tensors;
  std::shared_ptr<c10d::Reducer> reducer;
  // The Reducer needs it: it tells it, unasked whether there is one, when other
  // parameters are unused than in the pass before.
  std::shared_ptr<c10d::Logger> logger;
  bool synchronises = true;
  // Not after passes that changed nothing on any rank but its own, as PyTorch.
  bool buffers_due = true;
  bool delayed = false;
  int64_t passes = 0; // synchronising ones
  // What this rank's gradients are multiplied by; none before the first join().
  std::shared_ptr<double> weight;
};

void DistributedDataParallel::Impl::make_reducer() {
  const auto first = options.first_bucket_bytes;
  const auto usual = options.bucket_bytes;
  // All in one until the order is known in which gradients come, as PyTorch:
  // ranks could send buckets of a wrong order in different orders.
  const bool rebuilt = options.static_graph || !options.find_unused_parameters;
  const auto limits =
      rebuilt ? std::vector<size_t>{std::numeric_limits<int32_t>::max()}
              : std::vector<size_t>{
                    static_cast<size_t>(first), static_cast<size_t>(usual)};
  const std::vector<bool> sparse(tensors.trained.size(), false);
  auto buckets = std::get<0>(
      c10d::compute_bucket_assignment_by_size(tensors.trained, limits, sparse));
  std::ranges::reverse(buckets);
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    names[i] = tensors.names[i];
  }
  reducer = std::make_shared<c10d::Reducer>(
      tensors.trained,
      std::move(buckets),
      context.process_group(),
      sparse,
      usual,
      options.find_unused_parameters,
      options.gradient_as_bucket_view,
      std::move(names),
      first,
      /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false,
      std::vector<int64_t>{first, usual},
      /*batched_grad_copy=*/false);
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  logger->set_construction_data_and_log(
      "module",
      /*device_ids=*/{},
      /*output_device=*/-1,
      options.broadcast_buffers,
      /*has_sync_bn=*/false,
      options.static_graph);
  if (options.reduce_dtype) {
    reducer->register_comm_hook(
        make_reduce_hook(context.process_group(), *options.reduce_dtype));
  }
  if (options.static_graph) {
    reducer->set_static_graph();
  }
}

// Into the same memory, but past the version counters: an earlier forward pass
// may have saved a buffer for a backward pass that is yet to come, and this
// must not be the reason for which that one is refused.
void DistributedDataParallel::Impl::share_buffers() const {
  std::vector<at::Tensor> aliases;
  for (const auto& buffer : tensors.buffers) {
    aliases.push_back(buffer.variable_data());
  }
  const at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(
      context.process_group(), aliases, kBroadcastBytes, 0);
}

void DistributedDataParallel::Impl::report_unused(
    const c10::Error& error) const {
  std::string names;
  for (size_t i = 0; i < tensors.trained.size(); ++i) {
    if (!tensors.trained[i].grad().defined()) {
      names += (names.empty() ? "" : ", ") + tensors.names[i];
    }
  }
  TORCH_CHECK(
      false,
      "DistributedDataParallel::forward: rank ",
      context.rank(),
      ": the last backward pass did not reach every parameter",
      names.empty() ? "" : "; without a gradient: " + names,
      ". Set find_unused_parameters, or, if it did not run at all, use "
      "no_sync() or no-grad mode for such passes (",
      error.what_without_backtrace(),
      ")");
}

// The mean over all ranks, of which some give zeros, becomes that over the
// rest. As gradients come, so that a hook may send them as it likes.
void DistributedDataParallel::Impl::weigh_gradients() {
  weight = std::make_shared<double>(1);
  for (const auto& parameter : tensors.trained) {
    parameter.register_hook([factor = weight](const at::Tensor& gradient) {
      return *factor == 1 ? gradient : gradient * *factor;
    });
  }
}

// With a static graph the first pass only counts how often each parameter is
// used; its gradients are sent when backward has ended.
void DistributedDataParallel::Impl::delay_first_reduction(
    const std::vector<at::Tensor>& outputs) {
  if (std::exchange(delayed, true)) {
    return;
  }
  const auto queued = std::make_shared<bool>(false);
  for (const auto& output : outputs) {
    if (!output.defined() || !output.requires_grad()) {
      continue;
    }
    output.register_hook([queued, held = reducer](const at::Tensor&) {
      if (!std::exchange(*queued, true)) {
        torch::autograd::Engine::get_default_engine().queue_callback(
            [held] { held->delay_all_reduce(); });
      }
    });
  }
}

DistributedDataParallel::DistributedDataParallel(
    torch::nn::Module& module,
    const Context& context,
    const DistributedDataParallelOptions& options) {
  options.check();
  impl_ = std::make_unique<Impl>(module, context, options);
}

DistributedDataParallel::~DistributedDataParallel() {
  // Graphs may outlive this.
  impl_->reducer->remove_autograd_hooks();
}

// In the order of PyTorch's, which all ranks must keep.
void DistributedDataParallel::begin_forward() {
  const bool trains = at::GradMode::is_enabled();
  if (trains && impl_->synchronises) {
    const auto every = impl_->options.checksum_every;
    if (every > 0 && impl_->passes % every == 0) {
      check_same_on_all_ranks(
          impl_->context, impl_->tensors.trained, impl_->tensors.names);
    }
    ++impl_->passes;
    impl_->logger->set_runtime_stats_and_log();
    ContextAccess::impl(impl_->context)->gloo->progress()->count_step();
    impl_->reducer->prepare_for_forward();
  }
  if (trains) {
    try {
      impl_->reducer->rebuild_buckets();
    } catch (const c10::Error& error) {
      if (error.msg().find("finished reduction") == std::string::npos) {
        throw;
      }
      impl_->report_unused(error);
    }
  }
  if (impl_->buffers_due && impl_->options.broadcast_buffers &&
      !impl_->tensors.buffers.empty()) {
    impl_->share_buffers();
  }
}

void DistributedDataParallel::end_forward(
    const std::vector<at::Tensor>& outputs) {
  const auto& options = impl_->options;
  impl_->buffers_due = at::GradMode::is_enabled() && impl_->synchronises;
  if (!impl_->buffers_due) {
    return;
  }
  const bool searches = options.find_unused_parameters && !options.static_graph;
  impl_->reducer->prepare_for_backward(
      searches ? outputs : std::vector<at::Tensor>());
  if (options.static_graph) {
    impl_->delay_first_reduction(outputs);
  }
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(std::exchange(ddp.impl_->synchronises, false)) {}

DistributedDataParallel::NoSync::~NoSync() {
  ddp_.impl_->synchronises = before_;
}

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
  return NoSync(*this);
}

bool DistributedDataParallel::join(bool has_batch) {
  TORCH_CHECK(
      !impl_->options.static_graph,
      "DistributedDataParallel::join: not with static_graph, whose passes are "
      "all the same; unset it");
  const auto active = sum_over_ranks(impl_->context)(
                          at::full({1}, has_batch ? 1 : 0, at::kLong))
                          .item<int64_t>();
  if (!impl_->weight) {
    impl_->weigh_gradients();
  }
  *impl_->weight = active == 0
                       ? 1
                       : static_cast<double>(impl_->context.world_size()) /
                             static_cast<double>(active);
  return active > 0;
}

void DistributedDataParallel::pass_without_batch() {
  const auto& trained = impl_->tensors.trained;
  const size_t count =
      impl_->options.find_unused_parameters ? 1 : trained.size();
  forward([&] {
    at::Tensor sum;
    for (size_t i = 0; i < count; ++i) {
      const auto zero = (trained[i] * 0).sum().to(at::kFloat);
      sum = sum.defined() ? sum + zero : zero;
    }
    return sum;
  }).backward();
}

void DistributedDataParallel::zero_grad() {
  for (auto& parameter : impl_->tensors.trained) {
    parameter.mutable_grad().reset();
  }
}

std::vector<int64_t> DistributedDataParallel::bucket_bytes() const {
  std::vector<int64_t> sizes;
  for (const auto& bucket : impl_->reducer->get_grad_buckets(true)) {
    sizes.push_back(static_cast<int64_t>(bucket.getBuffer().nbytes()));
  }
  return sizes;
}

DistributedDataParallel::Times DistributedDataParallel::times() const {
  const auto data = impl_->logger->get_ddp_logging_data();
  const auto seconds = [&](const char* name) {
    const auto found = data.ints_map.find(name);
    return found == data.ints_map.end()
               ? 0.0
               : 1e-9 * static_cast<double>(found->second);
  };
  return {
      .forward = seconds("avg_forward_compute_time"),
      .backward = seconds("avg_backward_compute_time"),
      .communication = seconds("avg_backward_comm_time"),
      .overlap = seconds("avg_backward_compute_comm_overlap_time"),
      .passes = impl_->passes};
}

void ddp_detail::collect(
    const c10::IValue& output, std::vector<at::Tensor>& all) {
  output.visit([&](const c10::IValue& part) {
    if (part.isTensor()) {
      all.push_back(part.toTensor());
    }
    return false;
  });
}

} // namespace ampkit::dist
