#pragma once

// The members of TypedOptimizer, instantiated beside each optimizer's rule:
//     template class TypedOptimizer<AdamOptions>;

#include <memory>
#include <utility>
#include <vector>

#include "optim/typed_rule.h"

namespace ampkit::optim {

template <class Options>
RawGroup to_raw(ParamGroup<Options> group) {
  return {
      std::move(group.params),
      std::move(group.names),
      std::move(group.name),
      group_of(group.options)};
}

template <class Options>
std::vector<RawGroup> to_raw(std::vector<ParamGroup<Options>> groups) {
  std::vector<RawGroup> raw;
  raw.reserve(groups.size());
  for (auto& group : groups) {
    raw.push_back(to_raw(std::move(group)));
  }
  return raw;
}

template <class Options>
TypedOptimizer<Options>::TypedOptimizer(
    std::vector<at::Tensor> params, const Options& options)
    : TypedOptimizer(NamedParameters{std::move(params), {}}, options) {}

template <class Options>
TypedOptimizer<Options>::TypedOptimizer(
    NamedParameters params, const Options& options)
    : TypedOptimizer(std::vector<ParamGroup<Options>>{
          {std::move(params.params), options, "", std::move(params.names)}}) {}

template <class Options>
TypedOptimizer<Options>::TypedOptimizer(std::vector<ParamGroup<Options>> groups)
    : FusedOptimizer(
          std::make_unique<typename OptionTraits<Options>::Rule>(),
          to_raw(std::move(groups))) {}

template <class Options>
void TypedOptimizer<Options>::add_param_group(ParamGroup<Options> group) {
  add_group(to_raw(std::move(group)));
}

template <class Options>
Options TypedOptimizer<Options>::options(size_t index) const {
  return options_of<Options>(param_groups().at(index).options());
}

template <class Options>
void TypedOptimizer<Options>::set_options(
    const Options& options, size_t index) {
  check_fields(options);
  param_groups().at(index).set_options(group_of(options));
}

} // namespace ampkit::optim
