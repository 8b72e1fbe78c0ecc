#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/diagnose/finding.h>
#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::diagnose {

/// A fault to be planted, in text: `overflow at=encoder.3 step=40 rank=1`.
struct AMPKIT_API Fault {
  enum class Kind : uint8_t {
    nan, ///< the first element becomes NaN
    inf, ///< inf
    negative_inf, ///< -inf; in text: -inf
    overflow, ///< every element is multiplied by the dtype's largest number
    underflow, ///< and by the square of its smallest normal one
    zero, ///< every element becomes 0
  };
  Kind kind = Kind::nan;
  /// A pattern of module paths, as ModulePolicy's: the module or any below it.
  std::string at;
  int64_t step = 0;
  int rank = -1; ///< -1: every rank
  /// forward: what the module's first op that uses a parameter of it gives;
  /// backward: the gradient of that.
  Direction direction = Direction::forward;

  /// Reads `kind at=PATTERN [step=N] [rank=N] [direction=forward|backward]`, in
  /// any order after the kind. Throws c10::ValueError with the nearest known
  /// word for one that is not known, and for a missing kind or `at`.
  static Fault parse(const std::string& text);

  bool operator==(const Fault&) const = default;
};

/// The text that Fault::parse() reads.
AMPKIT_API std::string to_string(const Fault& fault);

/// Plants faults in a network that trains, so that people can see their alarms
/// ring. The network is not changed.
///
///     ampkit::diagnose::Inject inject(
///         *model, {ampkit::diagnose::Fault::parse("nan at=fc step=3")});
///     for (int64_t i = 0; i < steps; ++i) {
///       const auto planting = inject.step(i);
///       ... forward and backward ...
///     }
///
/// Each fault is planted once. Within a Watch::Step, begin it after that.
class AMPKIT_API Inject {
 public:
  /// From its construction to its end on one thread.
  class AMPKIT_API Step {
   public:
    ~Step();
    Step(Step&& other) noexcept;
    Step& operator=(Step&&) = delete;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    friend class Inject;
    struct State;
    explicit Step(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// `rank`: of this process. Throws c10::ValueError, with the nearest path, if
  /// a fault matches no module that has parameters.
  Inject(
      const torch::nn::Module& module, std::vector<Fault> faults, int rank = 0);
  ~Inject();
  Inject(const Inject&) = delete;
  Inject& operator=(const Inject&) = delete;
  Inject(Inject&&) = delete;
  Inject& operator=(Inject&&) = delete;

  /// Plants the faults of this step while the result lives. Throws c10::Error
  /// if this thread is planting already.
  [[nodiscard]] Step step(int64_t number);

  /// How many were planted.
  int64_t planted() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

} // namespace ampkit::diagnose
