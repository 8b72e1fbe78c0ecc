#include <ampkit/optim/adamw.h>

#include <torch/optim/adamw.h>

#include "optim/adam_rule.h"
#include "optim/typed_optimizer_impl.h"

namespace ampkit::optim {

template <>
struct OptionTraits<AdamWOptions> {
  static constexpr const char* kName = "AdamW";
  static constexpr bool kDecoupled = true;
  using Torch = torch::optim::AdamWOptions;
  using Rule = AdamRule<AdamWOptions>;

  template <class O, class Field>
  static void visit(O& o, Field field) {
    visit_adam_fields(o, field);
  }
  static void to_torch(const AdamWOptions& from, Torch& to) {
    adam_to_torch(from, to);
  }
  static void from_torch(const Torch& from, AdamWOptions& to) {
    adam_from_torch(from, to);
  }
};

template class TypedOptimizer<AdamWOptions>;

} // namespace ampkit::optim
