#include <ampkit/optim/adam.h>

#include <torch/optim/adam.h>

#include "optim/adam_rule.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {

template <>
struct OptionTraits<AdamOptions> {
  static constexpr const char* kName = "Adam";
  static constexpr bool kDecoupled = false;
  using Torch = torch::optim::AdamOptions;
  using Rule = AdamRule<AdamOptions>;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    visit_adam_fields(o, field);
  }
  static void to_torch(const AdamOptions& from, Torch& to) {
    adam_to_torch(from, to);
  }
  static void from_torch(const Torch& from, AdamOptions& to) {
    adam_from_torch(from, to);
  }
};

template class TypedOptimizer<AdamOptions>;

} // namespace ampkit::optim
