#include <ampkit/io/training_state.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <sstream>
#include <type_traits>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <ampkit/io/module_state.h>
#include <ampkit/io/rng_state.h>

namespace ampkit::io {
namespace {

constexpr const char* kRng = "rng";
// The one entry of a part that is a value; state_dict() leaves it out.
constexpr const char* kValue = "value";
constexpr const char* kArchive = "archive";

std::string part_of(const std::string& entry) {
  return entry.substr(0, entry.find('.'));
}

/// What `state` has of the part `name`.
StateDict entries_of(const StateDict& state, const std::string& name) {
  StateDict entries = state.subset(name);
  if (const StateValue* value = state.find(name)) {
    entries.set(kValue, *value);
  }
  return entries;
}

void put_entries(
    StateDict& state, const std::string& name, const StateDict& entries) {
  const StateValue* value = entries.find(kValue);
  const bool is_value = value != nullptr && entries.size() == 1 &&
                        !std::holds_alternative<at::Tensor>(*value);
  if (is_value) {
    state.set(name, *value);
  } else {
    state.set_all(name, entries);
  }
}

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& [name, value] : state.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    copy.set(
        name, tensor != nullptr ? StateValue(tensor->detach().clone()) : value);
  }
  return copy;
}

template <class T>
void take(T& target, const StateDict& state) {
  if constexpr (std::is_same_v<T, int64_t>) {
    target = state.integer(kValue);
  } else if constexpr (std::is_same_v<T, double>) {
    target = state.real(kValue);
  } else if constexpr (std::is_same_v<T, bool>) {
    target = state.boolean(kValue);
  } else {
    target = state.text(kValue);
  }
}

std::string why(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace()
                             : error.what();
}

} // namespace

TrainingState::TrainingState() {
  parts_.push_back({kRng, rng_state, set_rng_state});
}

void TrainingState::add(
    std::string name,
    std::function<StateDict()> save,
    std::function<void(const StateDict&)> load) {
  TORCH_CHECK_VALUE(
      !name.empty() && name.find('.') == std::string::npos,
      "TrainingState::add: the name of a part must not be empty nor have a "
      "'.', got '",
      name,
      "'");
  TORCH_CHECK_VALUE(
      std::ranges::find(parts_, name, &Part::name) == parts_.end(),
      "TrainingState::add: there is a part '",
      name,
      name == kRng ? "' already, the random generators" : "' already");
  parts_.push_back({std::move(name), std::move(save), std::move(load)});
}

void TrainingState::add(std::string name, torch::nn::Module& module) {
  add(
      std::move(name),
      [&module] { return module_state(module); },
      [&module](const StateDict& state) { load_module_state(module, state); });
}

void TrainingState::add(std::string name, int64_t& value) {
  add_value(std::move(name), &value);
}

void TrainingState::add(std::string name, double& value) {
  add_value(std::move(name), &value);
}

void TrainingState::add(std::string name, bool& value) {
  add_value(std::move(name), &value);
}

void TrainingState::add(std::string name, std::string& value) {
  add_value(std::move(name), &value);
}

void TrainingState::add_value(std::string name, Value value) {
  add(
      std::move(name),
      [value] {
        StateDict state;
        std::visit([&](auto* of) { state.set(kValue, *of); }, value);
        return state;
      },
      [value](const StateDict& state) {
        std::visit([&](auto* of) { take(*of, state); }, value);
      });
}

void TrainingState::add_archived(
    std::string name,
    std::function<void(torch::serialize::OutputArchive&)> save,
    std::function<void(torch::serialize::InputArchive&)> load) {
  add(
      std::move(name),
      [save = std::move(save)] {
        torch::serialize::OutputArchive archive;
        save(archive);
        std::ostringstream out;
        archive.save_to(out);
        const std::string bytes = out.str();
        auto tensor =
            at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
        std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
        StateDict state;
        state.set(kArchive, tensor);
        return state;
      },
      [load = std::move(load)](const StateDict& state) {
        const auto tensor = state.tensor(kArchive).cpu().contiguous();
        std::istringstream in(std::string(
            static_cast<const char*>(tensor.const_data_ptr()),
            tensor.nbytes()));
        torch::serialize::InputArchive archive;
        archive.load_from(in);
        load(archive);
      });
}

StateDict TrainingState::state_dict() const {
  StateDict state;
  for (size_t i = 1; i < parts_.size(); ++i) {
    put_entries(state, parts_[i].name, parts_[i].save());
  }
  put_entries(state, parts_.front().name, parts_.front().save());
  return state;
}

void TrainingState::check_parts(const StateDict& state) const {
  std::ostringstream problems;
  for (const Part& part : parts_) {
    // A disabled scaler has nothing to say.
    if (entries_of(state, part.name).empty() && !part.save().empty()) {
      problems << "\n  missing: " << part.name;
    }
  }
  std::string last; // entries of a part stand together
  for (const auto& entry : state.entries()) {
    const auto name = part_of(entry.first);
    if (name != last &&
        std::ranges::find(parts_, name, &Part::name) == parts_.end()) {
      problems << "\n  unexpected: " << name;
    }
    last = name;
  }
  const std::string text = problems.str();
  TORCH_CHECK(
      text.empty(),
      "TrainingState::load_state_dict: the state is not that of this run; "
      "nothing was loaded:",
      text,
      "\n  add() the same parts under the same names as the run that saved it");
}

void TrainingState::put_back(const StateDict& before, size_t count) {
  for (size_t i = 1; i <= count; ++i) {
    parts_[i].load(entries_of(before, parts_[i].name));
  }
}

void TrainingState::load_state_dict(const StateDict& state) {
  check_parts(state);
  const StateDict before = copy_of(state_dict());
  for (size_t i = 1; i <= parts_.size(); ++i) {
    const Part& part = parts_[i % parts_.size()]; // the generators last
    try {
      part.load(entries_of(state, part.name));
    } catch (const std::exception& error) {
      put_back(before, i - 1);
      TORCH_CHECK(
          false,
          "TrainingState::load_state_dict: '",
          part.name,
          "' refused its state; nothing was loaded: ",
          why(error));
    }
  }
}

} // namespace ampkit::io
