#include "oracle/driver/make_optimizer.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>

namespace ampkit::oracle {
namespace {

using namespace optim;
using nlohmann::json;

/// Sets `value` to what `o` has under `key`, if it has it.
template <class T>
void set(const json& o, const char* key, T& value) {
  if (o.contains(key)) {
    value = o[key].get<T>();
  }
}

template <class Options>
void set_common(const json& o, Options& options) {
  set(o, "lr", options.lr);
  set(o, "weight_decay", options.weight_decay);
  if constexpr (requires { options.maximize; }) {
    set(o, "maximize", options.maximize);
  }
  if constexpr (requires { options.amsgrad; }) {
    set(o, "amsgrad", options.amsgrad);
  }
  if constexpr (requires { options.betas; }) {
    set(o, "betas", options.betas);
  }
  if constexpr (requires { options.momentum; }) {
    set(o, "momentum", options.momentum);
  }
  if constexpr (requires { options.nesterov; }) {
    set(o, "nesterov", options.nesterov);
  }
  if constexpr (requires { options.eps = 1e-8; }) {
    set(o, "eps", options.eps);
  }
}

template <class Options>
void set_own(const json&, Options&) {}

void set_own(const json& o, SGDOptions& options) {
  set(o, "dampening", options.dampening);
}

void set_own(const json& o, AdagradOptions& options) {
  set(o, "lr_decay", options.lr_decay);
  set(o, "initial_accumulator_value", options.initial_accumulator_value);
}

void set_own(const json& o, RMSpropOptions& options) {
  set(o, "alpha", options.alpha);
  set(o, "centered", options.centered);
}

void set_own(const json& o, LAMBOptions& options) {
  set(o, "bias_correction", options.bias_correction);
}

void set_own(const json& o, AdafactorOptions& options) {
  set(o, "beta2_decay", options.beta2_decay);
  set(o, "d", options.d);
  if (o.contains("eps")) {
    options.eps.first = o["eps"][0].is_null()
                            ? std::nullopt
                            : std::optional(o["eps"][0].get<double>());
    options.eps.second = o["eps"][1];
  }
}

void set_own(const json& o, MuonOptions& options) {
  set(o, "ns_steps", options.ns_steps);
  set(o, "ns_coefficients", options.ns_coefficients);
  if (o.contains("adjust_lr_fn")) {
    options.adjust_lr_fn = o["adjust_lr_fn"] == "match_rms_adamw"
                               ? AdjustLr::match_rms_adamw
                               : AdjustLr::original;
  }
}

template <class Optimizer>
std::unique_ptr<FusedOptimizer> make(
    const json& task, const std::vector<std::vector<at::Tensor>>& groups) {
  using Options = typename Optimizer::Options;
  std::vector<ParamGroup<Options>> typed;
  for (size_t g = 0; g < groups.size(); ++g) {
    Options options;
    set_common(task["groups"][g]["options"], options);
    set_own(task["groups"][g]["options"], options);
    options.kernel = task["kernel"] == "stock"     ? Kernel::stock
                     : task["kernel"] == "highway" ? Kernel::highway
                                                   : Kernel::automatic;
    typed.push_back({groups[g], options});
  }
  return std::make_unique<Optimizer>(std::move(typed));
}

} // namespace

std::unique_ptr<FusedOptimizer> make_optimizer(
    const json& task, const std::vector<std::vector<at::Tensor>>& groups) {
  static const std::map<std::string, decltype(&make<Adam>)> makers{
      {"Adafactor", make<Adafactor>},
      {"Adagrad", make<Adagrad>},
      {"Adam", make<Adam>},
      {"AdamW", make<AdamW>},
      {"LAMB", make<LAMB>},
      {"Lion", make<Lion>},
      {"Muon", make<Muon>},
      {"RMSprop", make<RMSprop>},
      {"SGD", make<SGD>}};
  return makers.at(task["kind"])(task, groups);
}

} // namespace ampkit::oracle
