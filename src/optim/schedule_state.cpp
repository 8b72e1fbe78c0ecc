#include "schedule_state.h"

#include <limits>
#include <sstream>
#include <variant>

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

namespace ampkit::optim {
namespace {

/// A state dict's entries as one text, to compare two of them: every bit of a
/// number shows.
std::string text_of(const io::StateDict& state) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  for (const auto& [name, value] : state.entries()) {
    text << (text.tellp() > 0 ? ", " : "") << name << " = ";
    if (const auto* number = std::get_if<double>(&value)) {
      text << *number;
    } else {
      text << io::describe(value);
    }
  }
  return text.str();
}

} // namespace

std::vector<double> current_lrs(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

void set_lrs(
    torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  for (size_t g = 0; g < rates.size(); ++g) {
    optimizer.param_groups()[g].options().set_lr(rates[g]);
  }
}

std::vector<double> reals(
    const io::StateDict& state, const std::string& name, size_t count) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(state.real(name + "." + std::to_string(i)));
  }
  return values;
}

void set_reals(
    io::StateDict& state,
    const std::string& name,
    const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    state.set(name + "." + std::to_string(i), values[i]);
  }
}

io::StateDict schedule_header(
    const char* kind, const io::StateDict& settings, size_t groups) {
  io::StateDict state;
  state.set("schedule", kind);
  state.set_all("settings", settings);
  state.set("groups", static_cast<int64_t>(groups));
  return state;
}

void check_schedule_header(
    const io::StateDict& state,
    const char* kind,
    const io::StateDict& settings,
    size_t groups) {
  TORCH_CHECK(
      state.text("schedule") == kind,
      kind,
      "::load_state_dict: the state is of a ",
      state.text("schedule"));
  const auto saved = text_of(state.subset("settings"));
  TORCH_CHECK(
      saved == text_of(settings),
      kind,
      "::load_state_dict: the state was saved with the settings ",
      saved,
      "; these are ",
      text_of(settings));
  TORCH_CHECK(
      state.integer("groups") == static_cast<int64_t>(groups),
      kind,
      "::load_state_dict: the state has ",
      state.integer("groups"),
      " groups, the optimizer ",
      groups);
}

void check_groups(
    const char* kind, const torch::optim::Optimizer& optimizer, size_t groups) {
  const size_t now = optimizer.param_groups().size();
  TORCH_CHECK(
      now == groups,
      kind,
      "::step: the optimizer has ",
      now,
      " parameter groups, it had ",
      groups,
      "; make the schedule after adding groups");
}

} // namespace ampkit::optim
