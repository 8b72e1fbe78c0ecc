#include <ampkit/zoo/train/capsule_pass.h>

#include <sstream>
#include <utility>

#include <ampkit/diagnose/inject.h>
#include <ampkit/io/rng_state.h>
#include <torch/torch.h>

namespace ampkit::zoo {
namespace {

std::vector<diagnose::Fault> faults_of(const diagnose::Capsule& capsule) {
  std::vector<diagnose::Fault> faults;
  std::istringstream lines(capsule.faults);
  for (std::string line; std::getline(lines, line);) {
    faults.push_back(diagnose::Fault::parse(line));
  }
  return faults;
}

// As Trainer has it: the mean over all images of the step.
at::Tensor loss_of_step(const CapsuleRun& run, c10::Device device) {
  int64_t images = 0;
  for (const auto& batch : run.batches) {
    images += batch.input.size(0);
  }
  at::Tensor total;
  for (const auto& batch : run.batches) {
    const auto loss = torch::cross_entropy_loss(
        run.model.forward(batch.input.to(device)).to(at::kFloat),
        batch.target.to(device),
        {},
        at::Reduction::Mean,
        /*ignore_index=*/-100,
        run.config.train.label_smoothing);
    const auto share = loss * (static_cast<double>(batch.input.size(0)) /
                               static_cast<double>(images));
    total = total.defined() ? total + share : share;
  }
  return total;
}

double loss_scale_of(const diagnose::Capsule& capsule) {
  return capsule.state.contains("scaler.scale")
             ? capsule.state.real("scaler.scale")
             : 1.0;
}

} // namespace

std::vector<std::string> capsule_pass_overrides() {
  return {"precision.preset=fp32", "precision.policy=pytorch"};
}

diagnose::PrecisionRun capsule_pass(CapsuleRun& run) {
  restore_model(run);
  const auto faults = faults_of(run.capsule);
  const auto pass = [&run, faults](
                        c10::Device device,
                        const Precision& precision,
                        const AutocastOptions& region) {
    const auto& capsule = run.capsule;
    std::optional<diagnose::Inject> inject;
    std::optional<diagnose::Inject::Step> planting;
    if (!faults.empty()) {
      inject.emplace(*run.model.module, faults, capsule.rank);
      planting.emplace(inject->step(capsule.step));
    }
    const auto once = diagnose::single_pass(
        *run.model.module,
        [&] {
          io::set_rng_state(capsule.state.subset("rng"));
          return loss_of_step(run, device);
        },
        loss_scale_of(capsule));
    return once(device, precision, region);
  };
  return pass;
}

} // namespace ampkit::zoo
