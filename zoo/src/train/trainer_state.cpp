// What of a Trainer is saved.

#include <ampkit/io/module_state.h>
#include <ampkit/io/rng_state.h>
#include <ampkit/zoo/train/trainer.h>

#include "train/trainer_impl.h"

namespace ampkit::zoo {

io::StateDict Trainer::state_dict() const {
  const auto& t = *impl_;
  io::StateDict state;
  state.set("step", t.step);
  state.set("epoch", t.epoch);
  state.set("batch", t.batch);
  state.set("skipped", t.skipped);
  state.set("finished", t.finished);
  state.set_all("model", io::module_state(*t.model.module));
  t.updater->save_to(state);
  state.set_all("scaler", t.scaler.state_dict());
  state.set_all("health", t.health.state_dict());
  state.set_all("data", t.train_loader.state_dict());
  state.set_all("rng", io::rng_state());
  if (t.random_states.defined()) {
    state.set("rng_of_ranks", t.random_states);
  }
  if (t.ema) {
    state.set_all("ema", t.ema->state_dict());
  }
  if (t.region.fp8) {
    state.set_all("fp8", t.region.fp8->state_dict());
  }
  return state;
}

void Trainer::load_state_dict(const io::StateDict& state) {
  auto& t = *impl_;
  t.train_loader.load_state_dict(state.subset("data"));
  io::load_module_state(*t.model.module, state.subset("model"));
  t.updater->load_from(state);
  t.scaler.load_state_dict(state.subset("scaler"));
  t.health.load_state_dict(state.subset("health"));
  if (t.ema) {
    t.ema->load_state_dict(state.subset("ema"));
  }
  if (t.region.fp8) {
    t.region.fp8->load_state_dict(state.subset("fp8"));
  }
  io::set_rng_state(state.subset("rng"));
  if (state.find("rng_of_ranks") != nullptr) {
    t.ranks.set_random_state(state.tensor("rng_of_ranks"));
  }
  t.step = state.integer("step");
  t.epoch = state.integer("epoch");
  t.batch = state.integer("batch");
  t.skipped = state.integer("skipped");
  t.finished = state.boolean("finished");
}

} // namespace ampkit::zoo
