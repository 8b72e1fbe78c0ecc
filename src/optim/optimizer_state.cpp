// State dicts of the optimizers. Entries, all of them checked on loading:
//   optimizer, groups
//   group.<g>.name, group.<g>.<option>
//   group.<g>.parameter.<name>     text: dtype and shape
//   state.<name>.step, .<moment>, .master

#include <algorithm>
#include <set>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "optim/fused_optimizer_impl.h"

namespace ampkit::optim {
namespace {

using Records = std::vector<std::unique_ptr<ParameterRecord>>;

std::string group_key(size_t g) {
  return "group." + std::to_string(g);
}

std::string parameter_key(const ParameterRecord& record) {
  return group_key(record.group) + ".parameter." + record.name;
}

std::string state_key(const ParameterRecord& record) {
  return "state." + record.name;
}

std::string kind_of(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), " ", tensor.sizes());
}

/// What is wrong with a state, for one message about all of it.
class Problems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kShown) {
      text_ << "\n  - ";
      (text_ << ... << parts);
    }
  }

  void check_none(const char* who) const {
    TORCH_CHECK(
        count_ == 0,
        who,
        "::load_state_dict: the state does not fit, nothing was changed:",
        text_.str(),
        count_ > kShown ? c10::str("\n  - and ", count_ - kShown, " more")
                        : "");
  }

 private:
  static constexpr size_t kShown = 10;
  size_t count_ = 0;
  std::ostringstream text_;
};

/// A state that is checked in full before anything is applied.
class Loader {
 public:
  Loader(
      const io::StateDict& state,
      const UpdateRule& rule,
      Groups& groups,
      const Records& records)
      : state_(state), rule_(rule), groups_(groups), records_(records) {}

  void check();
  void apply();

 private:
  bool expect(const std::string& key);
  void check_kind();
  void check_group(size_t g);
  void check_parameter(const ParameterRecord& record);
  void check_state(const ParameterRecord& record);
  void check_tensor(
      const std::string& key,
      const ParameterRecord& record,
      at::IntArrayRef shape);
  void check_unexpected();
  std::vector<size_t> moments_in(const ParameterRecord& record) const;
  void restore(ParameterRecord& record) const;

  const io::StateDict& state_;
  const UpdateRule& rule_;
  Groups& groups_;
  const Records& records_;
  Problems problems_;
  std::set<std::string> expected_;
  std::vector<std::unique_ptr<OptimizerOptions>> options_;
};

bool Loader::expect(const std::string& key) {
  expected_.insert(key);
  if (!state_.contains(key)) {
    problems_.add("'", key, "' is missing");
    return false;
  }
  return true;
}

void Loader::check_kind() {
  if (expect("optimizer") && state_.text("optimizer") != rule_.name()) {
    problems_.add(
        "it is of ", state_.text("optimizer"), ", not of ", rule_.name());
  }
  const auto count = static_cast<int64_t>(groups_.size());
  if (expect("groups") && state_.integer("groups") != count) {
    problems_.add(
        "it has ",
        state_.integer("groups"),
        " parameter groups, the optimizer ",
        count);
  }
}

void Loader::check_group(size_t g) {
  expected_.insert(group_key(g) + ".name");
  const auto& current = groups_[g].options();
  const io::StateDict needed = rule_.save_options(current);
  for (const auto& [option, value] : needed.entries()) {
    if (!expect(group_key(g) + "." + option)) {
      options_.push_back(current.clone()); // for the checks that follow
      return;
    }
  }
  options_.push_back(rule_.load_options(state_.subset(group_key(g)), current));
}

void Loader::check_tensor(
    const std::string& key,
    const ParameterRecord& record,
    at::IntArrayRef shape) {
  expected_.insert(key);
  const at::Tensor& saved = state_.tensor(key);
  const auto type = state_dtype(record.parameter);
  if (saved.sizes() != shape || saved.scalar_type() != type) {
    problems_.add(
        "'",
        key,
        "' is ",
        kind_of(saved),
        ", the optimizer needs ",
        type,
        " ",
        shape);
  }
}

/// Those that the rule knows and the state has.
std::vector<size_t> Loader::moments_in(const ParameterRecord& record) const {
  const auto& names = rule_.moment_names();
  std::vector<size_t> present;
  for (size_t i = 0; i < names.size(); ++i) {
    if (state_.contains(state_key(record) + "." + names[i])) {
      present.push_back(i);
    }
  }
  return present;
}

void Loader::check_parameter(const ParameterRecord& record) {
  const std::string key = parameter_key(record);
  const std::string kind = kind_of(record.parameter);
  if (expect(key) && state_.text(key) != kind) {
    problems_.add(
        "parameter '",
        record.name,
        "' was ",
        state_.text(key),
        " when saved, and is ",
        kind);
    return;
  }
  if (state_.contains(state_key(record) + ".step")) { // else: never stepped
    check_state(record);
  }
}

void Loader::check_state(const ParameterRecord& record) {
  const std::string state = state_key(record);
  expected_.insert(state + ".step");
  if (state_.integer(state + ".step") < 0) {
    problems_.add("'", state, ".step' is negative");
  }
  const auto moments = moments_in(record);
  for (const size_t i : moments) {
    check_tensor(
        state + "." + rule_.moment_names()[i],
        record,
        rule_.moment_shape(i, record.parameter));
  }
  if (needs_master(record.parameter) && state_.contains(state + ".master")) {
    check_tensor(state + ".master", record, record.parameter.sizes());
  }
  for (const size_t i :
       rule_.moments_used(*options_[record.group], record.parameter)) {
    if (std::ranges::find(moments, i) == moments.end() &&
        !rule_.may_lack_moments()) {
      problems_.add("'", state, "' lacks moments: ", rule_.moment_names()[i]);
    }
  }
}

void Loader::check_unexpected() {
  for (const auto& [name, value] : state_.entries()) {
    if (!expected_.contains(name)) {
      problems_.add("'", name, "' is unknown here");
    }
  }
}

void Loader::check() {
  check_kind();
  problems_.check_none(rule_.name());
  for (size_t g = 0; g < groups_.size(); ++g) {
    check_group(g);
  }
  for (const auto& record : records_) {
    check_parameter(*record);
  }
  check_unexpected();
  problems_.check_none(rule_.name());
}

at::Tensor restored(const at::Tensor& saved, const at::Tensor& parameter) {
  return empty_state(parameter, saved.sizes(), saved.scalar_type())
      .copy_(saved);
}

void Loader::restore(ParameterRecord& record) const {
  const at::Tensor& parameter = record.parameter;
  const std::string key = state_key(record);
  record.moments.clear();
  record.master.reset();
  record.step_tensor.reset();
  record.step =
      state_.contains(key + ".step") ? state_.integer(key + ".step") : 0;
  const auto moments = moments_in(record);
  record.fresh = moments.empty();
  record.moments.resize(rule_.moment_names().size());
  for (const size_t i : moments) {
    record.moments[i] =
        restored(state_.tensor(key + "." + rule_.moment_names()[i]), parameter);
  }
  if (needs_master(parameter) && state_.contains(key + ".master")) {
    record.master = restored(state_.tensor(key + ".master"), parameter);
  }
}

void Loader::apply() {
  const at::NoGradGuard no_grad;
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].set_options(std::move(options_[g]));
  }
  for (const auto& record : records_) {
    restore(*record);
  }
}

void save_record(
    const UpdateRule& rule,
    const ParameterRecord& record,
    io::StateDict& state) {
  const int64_t steps = steps_taken(record);
  if (steps == 0) {
    return;
  }
  const std::string key = state_key(record);
  state.set(key + ".step", steps);
  for (size_t i = 0; i < record.moments.size() && !record.fresh; ++i) {
    if (record.moments[i].defined()) {
      state.set(key + "." + rule.moment_names()[i], record.moments[i]);
    }
  }
  if (record.master.defined()) {
    state.set(key + ".master", record.master);
  }
}

} // namespace

io::StateDict save_state(
    const UpdateRule& rule,
    const Groups& groups,
    const std::vector<std::string>& group_names,
    const Records& records) {
  io::StateDict state;
  state.set("optimizer", rule.name());
  state.set("groups", static_cast<int64_t>(groups.size()));
  for (size_t g = 0; g < groups.size(); ++g) {
    state.set(group_key(g) + ".name", group_names[g]);
    state.set_all(group_key(g), rule.save_options(groups[g].options()));
  }
  for (const auto& record : records) {
    state.set(parameter_key(*record), kind_of(record->parameter));
  }
  for (const auto& record : records) {
    save_record(rule, *record, state);
  }
  return state;
}

void load_state(
    const io::StateDict& state,
    const UpdateRule& rule,
    Groups& groups,
    const Records& records) {
  Loader loader(state, rule, groups, records);
  loader.check();
  loader.apply();
}

io::StateDict FusedOptimizer::state_dict() const {
  impl_->follow(param_groups_);
  return save_state(
      *impl_->rule, param_groups_, impl_->group_names, impl_->records);
}

void FusedOptimizer::load_state_dict(const io::StateDict& state) {
  impl_->follow(param_groups_);
  load_state(state, *impl_->rule, param_groups_, impl_->records);
}

} // namespace ampkit::optim
