#include <ampkit/optim/torch_state.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string_view>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include "optim/parameter_record.h"
#include "optim/torch_options.h"

// The state dicts of ampkit are flat (see optimizer_state.cpp), those of
// torch.optim nested:
//   group.<g>.<option>      param_groups[g][option]
//   state.<name>.<entry>    state[i][entry]
namespace ampkit::optim {
namespace {

using io::StateDict;
using io::TorchDict;
using io::TorchList;
using io::TorchValue;

constexpr const char* kMaster = "master";
constexpr const char* kStep = "step";
constexpr std::string_view kState = "state.";

// The parameters' names, group by group.
std::vector<std::vector<std::string>> names_of(
    const FusedOptimizer& optimizer) {
  std::vector<std::vector<std::string>> names;
  for (const auto& group : optimizer.param_groups()) {
    names.emplace_back();
    for (const auto& parameter : group.params()) {
      names.back().push_back(optimizer.name_of(parameter));
    }
  }
  return names;
}

// The entries of each parameter that has any, by its name.
std::map<std::string, TorchDict> to_torch_states(const StateDict& flat) {
  std::map<std::string, TorchDict> states;
  for (const auto& [key, value] : flat.entries()) {
    if (!key.starts_with(kState)) {
      continue;
    }
    const size_t dot = key.rfind('.');
    const std::string entry = key.substr(dot + 1);
    TorchDict& state = states[key.substr(kState.size(), dot - kState.size())];
    if (entry == kStep) {
      const auto steps = static_cast<double>(std::get<int64_t>(value));
      state.set(entry, at::scalar_tensor(steps, at::dtype(at::kFloat)));
    } else {
      state.set(entry, value);
    }
  }
  return states;
}

/// Turns a state of torch.optim into one of ampkit. What is wrong with it is
/// collected; what FusedOptimizer::load_state_dict() checks is left to it.
class Reader {
 public:
  Reader(const FusedOptimizer& optimizer, const TorchDict& given)
      : current_(optimizer.state_dict()),
        kind_(current_.text("optimizer")),
        names_(names_of(optimizer)),
        given_(given) {
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        parameters_.emplace(optimizer.name_of(parameter), parameter);
      }
    }
  }

  StateDict read();

 private:
  template <class... Parts>
  void problem(const Parts&... parts) {
    problems_ << "\n  - ";
    (problems_ << ... << parts);
  }

  void keep_what_python_does_not_say();
  void read_group(size_t g, const TorchDict& group);
  void read_options(size_t g, const TorchDict& group);
  void read_state(const std::string& name, const TorchDict& state);
  void read_step(const std::string& key, const TorchValue& value);
  std::vector<std::string> names_for(size_t g, const TorchDict& group) const;
  void check() const;

  const StateDict current_;
  const std::string kind_;
  const std::vector<std::vector<std::string>> names_;
  const TorchDict& given_;
  std::map<std::string, at::Tensor> parameters_;
  std::ostringstream problems_;
  StateDict result_;
};

// Kind of optimizer, names, shapes and dtypes.
void Reader::keep_what_python_does_not_say() {
  result_.set("optimizer", kind_);
  for (const auto& [key, value] : current_.entries()) {
    const bool is_group = key.starts_with("group.");
    if (key == "groups" || (is_group && key.ends_with(".name")) ||
        (is_group && key.find(".parameter.") != std::string::npos)) {
      result_.set(key, value);
    }
  }
}

void Reader::read_options(size_t g, const TorchDict& group) {
  const auto read = from_torch_group(group, options_of(current_, g), kind_);
  for (const auto& [option, value] : read.options) {
    result_.set("group." + std::to_string(g) + "." + option, value);
  }
  for (const auto& text : read.problems) {
    problem("param_groups[", g, "]: ", text);
  }
}

std::vector<std::string> Reader::names_for(
    size_t g, const TorchDict& group) const {
  std::vector<std::string> names;
  if (const TorchValue* given = group.find("param_names")) {
    for (const auto& name : given->items()) {
      names.push_back(name.text());
    }
  }
  auto sorted = names;
  auto ours = names_[g];
  std::sort(sorted.begin(), sorted.end());
  std::sort(ours.begin(), ours.end());
  return sorted == ours ? names : names_[g];
}

void Reader::read_step(const std::string& key, const TorchValue& value) {
  const double steps = number_of(value);
  if (steps >= 0 && steps == std::floor(steps)) {
    result_.set(key, static_cast<int64_t>(steps));
  } else {
    problem("'", key, "' should be a whole number, got ", steps);
  }
}

void Reader::read_state(const std::string& name, const TorchDict& state) {
  const at::Tensor& parameter = parameters_.at(name);
  const auto dtype = state_dtype(parameter);
  const size_t width = c10::elementSize(dtype);
  const std::string prefix = std::string(kState) + name + ".";
  if (!state.empty() && !state.contains(kStep)) {
    result_.set(prefix + kStep, 1); // SGD and Muon of Python do not count
  }
  for (const auto& [key, value] : state.entries()) {
    const std::string entry = std::holds_alternative<std::string>(key)
                                  ? std::get<std::string>(key)
                                  : io::describe_key(key);
    const auto* tensor = std::get_if<at::Tensor>(&value.variant());
    if (entry == kStep) {
      read_step(prefix + entry, value);
    } else if (
        value.is_none() || (entry == kMaster && !needs_master(parameter))) {
      continue; // a buffer that was not needed yet; a master no longer needed
    } else if (tensor == nullptr) {
      problem(
          "'", prefix, entry, "' should be a tensor, got ", value.describe());
    } else {
      const bool widen = tensor->is_floating_point() &&
                         static_cast<size_t>(tensor->element_size()) < width;
      result_.set(prefix + entry, widen ? tensor->to(dtype) : *tensor);
    }
  }
}

void Reader::read_group(size_t g, const TorchDict& group) {
  read_options(g, group);
  const auto& numbers = group.at("params").items();
  if (numbers.size() != names_[g].size()) {
    problem(
        "param_groups[",
        g,
        "] has ",
        numbers.size(),
        " parameters, the optimizer ",
        names_[g].size());
    return;
  }
  const TorchDict& states = given_.at("state").dict();
  const auto names = names_for(g, group);
  for (size_t i = 0; i < names.size(); ++i) {
    if (const TorchValue* state = states.find(numbers[i].integer())) {
      read_state(names[i], state->dict());
    }
  }
}

void Reader::check() const {
  TORCH_CHECK(
      problems_.str().empty(),
      "load_torch_state_dict: the state does not fit ",
      kind_,
      ", nothing was changed:",
      problems_.str());
}

StateDict Reader::read() {
  const auto& groups = given_.at("param_groups").items();
  if (groups.size() != names_.size()) {
    problem(
        "it has ",
        groups.size(),
        " parameter groups, the optimizer ",
        names_.size());
    check();
  }
  keep_what_python_does_not_say();
  for (size_t g = 0; g < groups.size(); ++g) {
    read_group(g, groups[g].dict());
  }
  check();
  return std::move(result_);
}

} // namespace

TorchDict to_torch_state_dict(const FusedOptimizer& optimizer) {
  const StateDict flat = optimizer.state_dict();
  auto states = to_torch_states(flat);
  TorchDict state;
  TorchList groups;
  int64_t number = 0;
  const auto names = names_of(optimizer);
  for (size_t g = 0; g < names.size(); ++g) {
    TorchList numbers;
    for (const auto& name : names[g]) {
      const auto place = states.find(name);
      if (place != states.end()) {
        state.set(number, std::move(place->second));
      }
      numbers.items.emplace_back(number++);
    }
    TorchDict group =
        to_torch_group(options_of(flat, g), flat.text("optimizer"));
    group.set("params", std::move(numbers));
    groups.items.emplace_back(std::move(group));
  }
  TorchDict result;
  result.set("state", std::move(state));
  result.set("param_groups", std::move(groups));
  return result;
}

void load_torch_state_dict(FusedOptimizer& optimizer, const TorchValue& state) {
  optimizer.load_state_dict(Reader(optimizer, state.dict()).read());
}

} // namespace ampkit::optim
