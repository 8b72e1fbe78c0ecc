// A Trainer that does the step of a capsule again.

#include <ampkit/diagnose/replay.h>
#include <ampkit/error.h>
#include <ampkit/zoo/train/trainer.h>

#include "train/diagnosis.h"
#include "train/trainer_impl.h"

namespace ampkit::zoo {
namespace {

std::vector<Batch> batches_of(const std::vector<io::StateDict>& saved) {
  std::vector<Batch> window;
  for (const auto& each : saved) {
    window.push_back(batch_of(each));
  }
  return window;
}

} // namespace

// What a capsule holds besides state_dict(): what the network is made for.
io::StateDict Trainer::Impl::dataset_state() const {
  io::StateDict state;
  state.set("images", data.train->size());
  state.set("channels", data.train->shape().channels);
  state.set("height", data.train->shape().height);
  state.set("width", data.train->shape().width);
  state.set("num_classes", data.train->num_classes());
  return state;
}

diagnose::ReplayedStep Trainer::Impl::step_again(
    diagnose::Watch::Step& watched, const std::vector<Batch>& window) {
  const auto planting = diagnosis->plant(step + 1);
  diagnosis->watch(&watched);
  const auto loss = backward(window, images_of(window));
  const auto result = updater->step(scaler);
  diagnosis->watch(nullptr);
  watched.scaled(scaler, result);
  scaler.update();
  return {loss, result};
}

diagnose::ReplayResult Trainer::replay(const diagnose::Capsule& capsule) {
  auto& own = *impl_;
  const auto restore = [&](const io::StateDict& state) {
    try {
      load_state_dict(state);
    } catch (const CheckpointError&) {
      throw;
    } catch (const c10::Error& error) {
      AMPKIT_CHECK_CHECKPOINT(
          false, capsule.path, " does not fit this run: ", error.msg());
    }
  };
  return diagnose::replay(
      capsule,
      *own.model.module,
      {.restore = restore,
       .run =
           [&](diagnose::Watch::Step& watched, const auto& batches) {
             return own.step_again(watched, batches_of(batches));
           }},
      {.scale_floor = static_cast<float>(own.config.precision.min_scale)});
}

} // namespace ampkit::zoo
