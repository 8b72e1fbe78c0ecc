#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/optim/param_group.h>

namespace ampkit::optim {

/// Settings of decay_groups().
struct DecayOptions {
  /// Also decay parameters of norm layers and those of fewer than two
  /// dimensions, such as biases.
  bool decay_norms_and_biases = false;
};

/// Parameters by whether they decay, with their names in the module.
struct DecayParts {
  NamedParameters decayed;
  NamedParameters kept;
};

/// The parameters of `module`, each once, under its first name.
AMPKIT_API DecayParts split_for_decay(
    const torch::nn::Module& module, const DecayOptions& options = {});

/// Two groups, "decayed" with `options` and "not decayed" with the same but
/// weight_decay 0, for the constructor of an optimizer; a group that would have
/// no parameters is left out.
///
///     AdamW optimizer(decay_groups(*model, AdamWOptions{.lr = 3e-4}));
///
/// Decaying the scales of norm layers, and biases, has no use and may harm.
template <class Options>
std::vector<ParamGroup<Options>> decay_groups(
    const torch::nn::Module& module,
    Options options,
    const DecayOptions& which = {}) {
  DecayParts parts = split_for_decay(module, which);
  std::vector<ParamGroup<Options>> groups;
  const auto add = [&](NamedParameters& part, const char* name) {
    if (!part.params.empty()) {
      groups.push_back(
          {std::move(part.params), options, name, std::move(part.names)});
    }
  };
  add(parts.decayed, "decayed");
  options.weight_decay = 0;
  add(parts.kept, "not decayed");
  return groups;
}

} // namespace ampkit::optim
