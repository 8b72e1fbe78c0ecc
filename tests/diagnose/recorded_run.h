#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/diagnose/capsule_recorder.h>
#include <ampkit/diagnose/replay.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/rng_state.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "diagnose/small_nets.h"

namespace ampkit::diagnose {

/// A program that trains a convolutional net with dropout in fp16, as one
/// writes it with ampkit.
struct RecordedRun {
  explicit RecordedRun(uint64_t seed = 1)
      : net((torch::manual_seed(seed), std::make_shared<SmallConvNet>())),
        optimizer(net->parameters(), {.lr = 1e-2}),
        scaler(GradScalerOptions{.init_scale = 1024, .min_scale = 64}) {
    scaler.name_parameters(*net);
  }

  io::StateDict state_dict() const {
    io::StateDict state;
    state.set_all("model", io::module_state(*net));
    state.set_all("optimizer", optimizer.state_dict());
    state.set_all("scaler", scaler.state_dict());
    state.set_all("rng", io::rng_state());
    return state;
  }
  void load_state_dict(const io::StateDict& state) {
    io::load_module_state(*net, state.subset("model"));
    optimizer.load_state_dict(state.subset("optimizer"));
    scaler.load_state_dict(state.subset("scaler"));
    io::set_rng_state(state.subset("rng"));
  }

  /// Twelve images and their labels, other ones in each step.
  static io::StateDict batch(int64_t step) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(100 + step);
    io::StateDict tensors;
    tensors.set("image", torch::randn({12, 1, 8, 8}, random));
    tensors.set("label", torch::randint(0, 4, {12}, random, torch::kLong));
    return tensors;
  }

  at::Tensor loss_of(const io::StateDict& tensors) {
    net->features = features;
    net->pooled = [](const at::Tensor& x) {
      return torch::dropout(x, 0.3, true);
    };
    const Autocast autocast(torch::kCPU, at::kHalf);
    return torch::cross_entropy_loss(
        net->forward(tensors.tensor("image")).to(at::kFloat),
        tensors.tensor("label"));
  }

  /// Up to the scaler's update(), without it.
  ReplayedStep pass(const std::vector<io::StateDict>& batches) {
    at::Tensor total;
    optimizer.zero_grad();
    for (const auto& each : batches) {
      const auto loss = loss_of(each) / static_cast<double>(batches.size());
      scaler.scale(loss).backward();
      total = total.defined() ? total + loss.detach() : loss.detach();
    }
    return {total, scaler.step(optimizer)};
  }

  /// Steps `from` to `to`, that one not, with `capsules`.
  void train(CapsuleRecorder& capsules, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      capsules.begin(i);
      std::vector<io::StateDict> batches;
      for (int64_t part = 0; part < micro_batches; ++part) {
        batches.push_back(batch(10 * i + part));
        capsules.batch(batches.back());
      }
      if (before) {
        before(i);
      }
      const auto step = pass(batches);
      capsules.end(step.loss, *step.result);
      scaler.update();
    }
  }

  ReplayCallbacks callbacks() {
    return {
        .restore = [this](const auto& state) { load_state_dict(state); },
        .run =
            [this](Watch::Step& step, const auto& batches) {
              auto done = pass(batches);
              step.scaled(scaler, *done.result);
              return done;
            }};
  }

  std::shared_ptr<SmallConvNet> net;
  optim::AdamW optimizer;
  GradScaler scaler;
  Tap features = unchanged;
  std::function<void(int64_t step)> before; ///< after begin()
  int64_t micro_batches = 1;
};

/// log(0): NaN in the loss.
inline at::Tensor logarithm(const at::Tensor& x) {
  return torch::log(x - x);
}

/// What `run` holds, to the last bit.
inline std::vector<at::Tensor> results_of(const RecordedRun& run) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : run.net->parameters()) {
    all.push_back(parameter.detach().clone());
    all.push_back(parameter.grad().clone());
  }
  for (const auto& buffer : run.net->buffers()) {
    all.push_back(buffer.clone());
  }
  return all;
}

} // namespace ampkit::diagnose
