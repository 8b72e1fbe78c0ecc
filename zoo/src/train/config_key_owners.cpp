#include "train/config_key_owners.h"

#include <algorithm>

namespace ampkit::zoo {
namespace {

using Names = std::vector<std::string>;

struct Owned {
  Names keys;
  Names owners;
};

// muon leaves all but matrices to an adamw, which is why it has adamw's keys.
const std::vector<Owned>& owned_keys() {
  static const std::vector<Owned> all{
      {{"optimizer.beta1", "optimizer.beta2"},
       {"adam", "adamw", "lamb", "lion", "muon"}},
      {{"optimizer.eps"},
       {"adagrad", "adam", "adamw", "lamb", "muon", "rmsprop"}},
      {{"optimizer.amsgrad"}, {"adam", "adamw", "muon"}},
      {{"optimizer.momentum"}, {"muon", "rmsprop", "sgd"}},
      {{"optimizer.dampening"}, {"sgd"}},
      {{"optimizer.nesterov"}, {"muon", "sgd"}},
      {{"optimizer.lr_decay", "optimizer.initial_accumulator_value"},
       {"adagrad"}},
      {{"optimizer.alpha", "optimizer.centered"}, {"rmsprop"}},
      {{"optimizer.beta2_decay", "optimizer.d"}, {"adafactor"}},
      {{"optimizer.bias_correction"}, {"lamb"}},
      {{"optimizer.ns_steps", "optimizer.adjust_lr", "optimizer.adamw_lr"},
       {"muon"}},
      {{"schedule.final_factor"},
       {"cosine",
        "cosine-restarts",
        "linear",
        "one-cycle",
        "plateau",
        "polynomial",
        "warmup-stable-decay"}},
      {{"schedule.cycle_momentum"}, {"one-cycle"}},
      {{"schedule.gamma"}, {"multi-step", "plateau", "step"}},
      {{"schedule.step_size"}, {"step"}},
      {{"schedule.milestones"}, {"multi-step"}},
      {{"schedule.period", "schedule.period_factor"}, {"cosine-restarts"}},
      {{"schedule.power"}, {"polynomial"}},
      {{"schedule.decay", "schedule.decay_shape"}, {"warmup-stable-decay"}},
      {{"schedule.patience", "schedule.threshold", "schedule.cooldown"},
       {"plateau"}}};
  return all;
}

} // namespace

void set_owners(std::vector<Key>& keys) {
  for (const auto& owned : owned_keys()) {
    for (const auto& name : owned.keys) {
      auto& key = *std::ranges::find(keys, name, &Key::name);
      key.only_of = owned.owners;
      if (key.help.empty()) {
        key.help = "of " + listed(owned.owners);
      }
    }
  }
}

} // namespace ampkit::zoo
