// One rank of the training in ddp_ranks.py, by ampkit.

#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/io/safetensors.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

/// The nets of ddp_ranks.py, under the same names.
struct RankNet : torch::nn::Module {
  explicit RankNet(const std::string& kind) {
    using namespace torch::nn;
    if (kind == "conv") {
      body = register_module(
          "body",
          Sequential(
              Conv2d(Conv2dOptions(2, 4, 3).padding(1)),
              BatchNorm2d(4),
              ReLU(),
              Flatten(),
              Linear(64, 4)));
    } else if (kind == "tied") {
      first = register_parameter("first", at::zeros({8, 8}));
      second = register_parameter("second", first);
    } else {
      body = register_module(
          "body",
          Sequential(Linear(8, 16), BatchNorm1d(16), ReLU(), Linear(16, 4)));
    }
    if (kind == "branch") {
      extra = register_module("extra", Linear(8, 4));
    }
  }

  at::Tensor forward(const at::Tensor& input, bool use_extra) {
    if (first.defined()) {
      return at::linear(at::tanh(at::linear(input, first)), second);
    }
    const auto output = body->forward(input);
    return extra && use_extra ? output + extra(input) : output;
  }

  torch::nn::Sequential body{nullptr};
  torch::nn::Linear extra{nullptr};
  at::Tensor first;
  at::Tensor second;
};

class RankTraining {
 public:
  RankTraining(const json& task, const std::string& tensors)
      : task_(task),
        reader_(tensors),
        context_(dist::init(
            {.timeout = std::chrono::seconds(60),
             .with_python = task_.value("with_python", false)})),
        net_(task["net"].get<std::string>()) {
    const at::NoGradGuard no_grad;
    for (auto& item : net_.named_parameters()) {
      if (reader_.contains("state." + item.key())) {
        item.value().copy_(reader_.view("state." + item.key()));
      }
    }
  }

  /// The gradients of the first step and the state after the last.
  io::NamedTensors run() {
    dist::DistributedDataParallel ddp(
        net_,
        context_,
        {.bucket_bytes = task_["bucket_bytes"],
         .gradient_as_bucket_view = task_["views"],
         .find_unused_parameters = task_["find_unused"],
         .static_graph = task_["static_graph"]});
    auto parameters = net_.parameters();
    if (net_.first.defined()) {
      parameters = {net_.first}; // LibTorch lists, and would step, it twice
    }
    torch::optim::SGD optimizer(
        parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
    io::NamedTensors result;
    const int64_t micro_batches = task_["micro_batches"];
    for (int64_t step = 0; step < task_["steps"].get<int64_t>(); ++step) {
      {
        const auto no_sync = ddp.no_sync();
        for (int64_t i = 0; i + 1 < micro_batches; ++i) {
          pass(ddp, step, i);
        }
      }
      pass(ddp, step, micro_batches - 1);
      if (step == 0) {
        add_gradients(result);
      }
      optimizer.step();
      ddp.zero_grad();
    }
    for (const auto& item : net_.named_parameters()) {
      result.emplace_back("state." + item.key(), item.value().detach().clone());
    }
    for (const auto& item : net_.named_buffers()) {
      result.emplace_back("state." + item.key(), item.value());
    }
    context_.barrier();
    return result;
  }

 private:
  at::Tensor rows(const char* name, int64_t step, int64_t micro) const {
    const int64_t micro_batches = task_["micro_batches"];
    const auto all = reader_.view(name)[step];
    const auto count = all.size(0) / context_.world_size() / micro_batches;
    return all.narrow(
        0, (context_.rank() * micro_batches + micro) * count, count);
  }

  void pass(dist::DistributedDataParallel& ddp, int64_t step, int64_t micro) {
    // Some ranks, in some steps, in some micro-batches.
    const bool use_extra = (context_.rank() + step + micro) % 2 == 0;
    const auto input = rows("input", step, micro);
    const auto output =
        ddp.forward([&] { return net_.forward(input, use_extra); });
    torch::mse_loss(output, rows("target", step, micro)).backward();
  }

  void add_gradients(io::NamedTensors& result) const {
    for (const auto& item : net_.named_parameters()) {
      if (item.value().grad().defined()) {
        result.emplace_back("grad." + item.key(), item.value().grad().clone());
      }
    }
  }

  json task_;
  io::SafetensorsReader reader_;
  dist::Context context_;
  RankNet net_;
};

/// ARGUMENTS: task.json tensors.safetensors result.safetensors; who this rank
/// is stands in the environment.
void run_ddp(std::span<const std::string> args) {
  RankTraining training(read_json(args[0]), args[1]);
  io::save_safetensors(args[2], training.run());
}

const Command kDdp{"ddp", run_ddp};

} // namespace
} // namespace ampkit::oracle
