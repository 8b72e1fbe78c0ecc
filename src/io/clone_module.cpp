#include <ampkit/io/clone_module.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <ampkit/io/state_dict.h>

#include "io/module_members.h"

namespace ampkit::io {
namespace {

const at::Tensor& tensor_of(const StateDict::Entry& entry) {
  return std::get<at::Tensor>(entry.second);
}

// For each name the first one of the same tensor: its own if it has no other.
std::map<std::string, std::string> first_names(const StateDict& members) {
  std::map<const void*, std::string> first;
  std::map<std::string, std::string> result;
  for (const auto& entry : members.entries()) {
    const auto place =
        first.emplace(tensor_of(entry).unsafeGetTensorImpl(), entry.first);
    result.emplace(entry.first, place.first->second);
  }
  return result;
}

void list_missing(
    const StateDict& from,
    const StateDict& in,
    const char* text,
    std::ostringstream& problems) {
  for (const auto& entry : from.entries()) {
    if (!in.contains(entry.first)) {
      problems << text << entry.first;
    }
  }
}

void check_same_structure(const StateDict& source, const StateDict& target) {
  std::ostringstream problems;
  list_missing(source, target, "\n  the target has no ", problems);
  list_missing(target, source, "\n  the source has no ", problems);
  const auto source_ties = first_names(source);
  const auto target_ties = first_names(target);
  for (const auto& entry : source.entries()) {
    const std::string& name = entry.first;
    if (!target.contains(name)) {
      continue;
    }
    if (tensor_of(entry).sizes() != target.tensor(name).sizes()) {
      problems << "\n  " << name << " has sizes " << tensor_of(entry).sizes()
               << " and " << target.tensor(name).sizes();
    }
    const auto& ours = source_ties.at(name);
    const auto& theirs = target_ties.at(name);
    if (ours != theirs) {
      problems << "\n  " << name << " is tied to "
               << (ours != name ? ours : theirs) << " only in the "
               << (ours != name ? "source" : "target");
    }
  }
  TORCH_CHECK(
      problems.str().empty(),
      "clone_module: the modules are built differently; nothing was copied. "
      "Give a function that builds the module as the first one was built:",
      problems.str());
}

} // namespace

void mirror_module(const torch::nn::Module& source, torch::nn::Module& target) {
  const StateDict from = module_members(source);
  const StateDict to = module_members(target);
  check_same_structure(from, to);
  const at::NoGradGuard no_grad;
  for (const auto& entry : from.entries()) {
    const at::Tensor& tensor = to.tensor(entry.first);
    tensor.set_data(tensor_of(entry).detach().clone());
    tensor.set_requires_grad(tensor_of(entry).requires_grad());
  }
  // From the outermost on, since train() goes down to all submodules. The
  // modules themselves need not be held by a shared_ptr.
  target.train(source.is_training());
  const auto modes = source.named_modules("", /*include_self=*/false);
  for (const auto& module : target.named_modules("", /*include_self=*/false)) {
    if (const auto* same = modes.find(module.key())) {
      module.value()->train((*same)->is_training());
    }
  }
}

} // namespace ampkit::io
