#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ampkit/optim/typed_optimizer.h>
#include <c10/util/Exception.h>

#include "optim/gradient_pass.h"
#include "optim/option_fields.h"
#include "optim/update_rule.h"

namespace ampkit::optim {

/// What an optimizer's options are called and consist of, and the form in which
/// a parameter group keeps them; specialised beside each optimizer's rule:
///     static constexpr const char* kName = "Adam";
///     using Rule = ...;   // default-constructible
///     template <class O, class Field> static void visit(O& o, Field field);
///     static void check(const Options&);   // optional: what no range says
///     // Only if LibTorch has a type for the options:
///     using Torch = torch::optim::AdamOptions;
///     static void to_torch(const Options& from, Torch& to);
///     static void from_torch(const Torch& from, Options& to);
template <class Options>
struct OptionTraits;

/// Options of a group that are also LibTorch's, for code that casts to those;
/// what LibTorch has no place for stands in `rest`.
template <class Torch, class Options>
struct TorchGroup : Torch {
  explicit TorchGroup(const Options& options)
      : Torch(options.lr), rest(options) {
    OptionTraits<Options>::to_torch(options, *this);
  }

  Options rest;

  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<TorchGroup>(*this);
  }
};

/// Options of a group that LibTorch has no type for.
template <class Options>
struct OwnGroup : OptimizerOptions {
  Options values;

  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<OwnGroup>(*this);
  }
  double get_lr() const override { return values.lr; }
  void set_lr(double lr) override { values.lr = lr; }
};

template <class Options>
[[noreturn]] void throw_wrong_options() {
  const char* name = OptionTraits<Options>::kName;
  TORCH_CHECK(
      false,
      name,
      ": a parameter group has another optimizer's options; add groups with ",
      name,
      "::add_param_group");
}

/// Throws c10::Error if `group` has another optimizer's options.
template <class Options>
Options options_of(const OptimizerOptions& group) {
  using Traits = OptionTraits<Options>;
  if constexpr (requires { typename Traits::Torch; }) {
    using Torch = typename Traits::Torch;
    const auto* torch = dynamic_cast<const Torch*>(&group);
    if (torch == nullptr) {
      throw_wrong_options<Options>();
    }
    // LibTorch's own type, where somebody put it there, says nothing of ours.
    const auto* full = dynamic_cast<const TorchGroup<Torch, Options>*>(torch);
    Options options = full != nullptr ? full->rest : Options();
    Traits::from_torch(*torch, options);
    return options;
  } else {
    const auto* own = dynamic_cast<const OwnGroup<Options>*>(&group);
    if (own == nullptr) {
      throw_wrong_options<Options>();
    }
    return own->values;
  }
}

template <class Options>
std::unique_ptr<OptimizerOptions> group_of(const Options& options) {
  using Traits = OptionTraits<Options>;
  if constexpr (requires { typename Traits::Torch; }) {
    return std::make_unique<TorchGroup<typename Traits::Torch, Options>>(
        options);
  } else {
    auto group = std::make_unique<OwnGroup<Options>>();
    group->values = options;
    return group;
  }
}

template <class Options>
void check_fields(const Options& options) {
  using Traits = OptionTraits<Options>;
  Traits::visit(options, CheckFields{Traits::kName});
  if constexpr (requires { Traits::check(options); }) {
    Traits::check(options);
  }
}

/// The part of a rule that follows from the list of its options.
template <class OptionsType>
class TypedRule : public UpdateRule {
 public:
  using Options = OptionsType;
  using Traits = OptionTraits<Options>;

  const char* name() const override { return Traits::kName; }

  void check_options(const OptimizerOptions& options) const override {
    check_fields(options_of<Options>(options));
  }

  Kernel kernel(const OptimizerOptions& options) const override {
    return options_of<Options>(options).kernel;
  }

  io::StateDict save_options(const OptimizerOptions& options) const override {
    io::StateDict state;
    const auto values = options_of<Options>(options);
    Traits::visit(values, SaveFields{state});
    return state;
  }

  std::unique_ptr<OptimizerOptions> load_options(
      const io::StateDict& state,
      const OptimizerOptions& current) const override {
    auto loaded = options_of<Options>(current);
    Traits::visit(loaded, LoadFields{state});
    check_fields(loaded);
    return group_of(loaded);
  }
};

/// A rule that updates each element by itself. `Factors` is what is the same
/// for all elements of a parameter; derived classes say what it is for one that
/// has `step` steps, this one included, and call the kernel.
template <class Options, class Factors>
class ElementwiseRule : public TypedRule<Options> {
 public:
  bool has_own_kernel(const at::Tensor&) const override { return true; }

  void update_on_cpu(
      std::span<const Work> works, const GradientUse& use) override {
    std::vector<Options> options(works.size());
    std::vector<Factors> factors(works.size());
    for (size_t i = 0; i < works.size(); ++i) {
      const bool as_before = i > 0 &&
                             works[i].options == works[i - 1].options &&
                             works[i].record->step == works[i - 1].record->step;
      options[i] =
          as_before ? options[i - 1] : options_of<Options>(*works[i].options);
      factors[i] = factors_of(options[i], *works[i].record);
    }
    update_elementwise(
        works,
        use,
        [&](size_t i) { return options[i].maximize; },
        [&](size_t i, const kernels::UpdateSpan& run) {
          this->update_run(factors[i], run);
        });
  }

 protected:
  /// `record.step` is that before this step.
  virtual Factors factors_of(
      const Options& options, const ParameterRecord& record) const = 0;
  virtual void update_run(
      const Factors& factors, kernels::UpdateSpan run) const = 0;
};

} // namespace ampkit::optim
