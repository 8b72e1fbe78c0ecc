#include "diagnose/op_traits.h"

#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>

namespace ampkit::diagnose {
namespace {

OpTraits read_traits(const at::RecordFunction& fn) {
  OpTraits traits;
  const auto base = base_name(fn.name());
  traits.uninitialised = base.starts_with("empty") ||
                         base.starts_with("new_empty") || base == "resize" ||
                         base == "set";
  const auto name = fn.operator_name();
  const auto handle =
      name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (!handle || !handle->hasSchema()) {
    traits.once_only = true;
    return traits;
  }
  // The last two only choose a backend's convolution.
  traits.composite = handle->hasKernelForDispatchKey(
                         c10::DispatchKey::CompositeImplicitAutograd) ||
                     base == "convolution" || base == "_convolution";
  traits.writes = handle->schema().is_mutable();
  traits.once_only =
      traits.writes || handle->hasTag(at::Tag::nondeterministic_seeded);
  return traits;
}

} // namespace

const OpTraits& OpTraitsCache::of(const at::RecordFunction& fn) {
  std::string key = fn.name();
  key.append(1, '.').append(fn.overload_name());
  const auto found = known_.find(key);
  if (found != known_.end()) {
    return found->second;
  }
  return known_.emplace(std::move(key), read_traits(fn)).first->second;
}

std::string_view base_name(std::string_view op) {
  const auto colon = op.rfind(':');
  if (colon != std::string_view::npos) {
    op.remove_prefix(colon + 1);
  }
  while (op.ends_with('_')) {
    op.remove_suffix(1);
  }
  return op;
}

} // namespace ampkit::diagnose
