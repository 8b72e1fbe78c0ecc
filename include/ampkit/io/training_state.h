#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn
namespace torch::serialize {
class InputArchive;
class OutputArchive;
} // namespace torch::serialize

namespace ampkit::io {

/// What gives its state away and takes it back: optimizers, schedules, scalers
/// and averages of ampkit, data loaders, and whatever you write.
template <class Part>
concept HasStateDict = requires(Part part, const StateDict& state) {
  { part.state_dict() } -> std::convertible_to<StateDict>;
  part.load_state_dict(state);
};

/// What LibTorch saves in archives: samplers of torch::data.
template <class Part>
concept HasArchive = requires(
    Part part,
    torch::serialize::OutputArchive& to,
    torch::serialize::InputArchive& from) {
  part.save(to);
  part.load(from);
};

/// All that the next step of a run depends on, saved and restored as one, so
/// that nothing of it is forgotten: a run that was stopped and resumed ends in
/// the bits of one that was not.
///
///     io::TrainingState run;
///     run.add("model", *model);
///     run.add("optimizer", optimizer);
///     run.add("schedule", schedule);
///     run.add("scaler", scaler);
///     run.add("step", step);
///     if (const auto loaded = checkpoints.load_latest()) {
///       run.load_state_dict(loaded->state);
///     }
///     ...
///     checkpoints.save(step, run.state_dict());
///
/// The random generators are always in it, as "rng" (see rng_state()). With
/// several ranks, each has its own, and its own place in the data: every rank
/// saves its TrainingState.
///
/// Keeps references: what was added must live as long. Not thread-safe; call it
/// on the thread that trains, whose random numbers they are.
class AMPKIT_API TrainingState {
 public:
  TrainingState();

  /// A part under `name`. Each throws c10::ValueError if `name` is empty, has a
  /// '.' in it, or is there already ("rng" is).
  void add(std::string name, torch::nn::Module& module);
  void add(std::string name, int64_t& value);
  void add(std::string name, double& value);
  void add(std::string name, bool& value);
  void add(std::string name, std::string& value);
  void add(
      std::string name,
      std::function<StateDict()> save,
      std::function<void(const StateDict& state)> load);

  template <HasStateDict Part>
  void add(std::string name, Part& part) {
    add(
        std::move(name),
        [&part] { return part.state_dict(); },
        [&part](const StateDict& state) { part.load_state_dict(state); });
  }

  /// A sampler of torch::data, for loops that call its next(). (A DataLoader
  /// resets its sampler when an epoch begins, in Python's way.)
  template <HasArchive Sampler>
  void add_sampler(std::string name, Sampler& sampler) {
    add_archived(
        std::move(name),
        [&sampler](torch::serialize::OutputArchive& to) { sampler.save(to); },
        [&sampler](torch::serialize::InputArchive& from) {
          sampler.load(from);
        });
  }

  /// "<part>.<entry>" for each entry of a part, "<name>" for a value, in the
  /// order in which they were added, "rng" last. Shares memory with the parts:
  /// save it, or clone.
  StateDict state_dict() const;

  /// Puts every part back, in the order in which they were added, the random
  /// generators last.
  ///
  /// Throws c10::Error with all parts that only the run or only `state` has, or
  /// naming the part that refused its state and why. Nothing is changed then:
  /// parts that had been loaded before it get back what they had, for which a
  /// copy of them is kept meanwhile.
  void load_state_dict(const StateDict& state);

 private:
  struct Part {
    std::string name;
    std::function<StateDict()> save;
    std::function<void(const StateDict&)> load;
  };
  using Value = std::variant<int64_t*, double*, bool*, std::string*>;

  void add_value(std::string name, Value value);
  void add_archived(
      std::string name,
      std::function<void(torch::serialize::OutputArchive&)> save,
      std::function<void(torch::serialize::InputArchive&)> load);
  void check_parts(const StateDict& state) const;
  void put_back(const StateDict& before, size_t count);

  std::vector<Part> parts_; // the generators first
};

} // namespace ampkit::io
