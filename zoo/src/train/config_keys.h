#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ampkit/zoo/train/config.h>

namespace ampkit::zoo {

/// Numbers from `low` to `high`; an open end excludes the limit itself.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool contains(double value) const;
  /// ">= 0", "in [0, 1)"; empty if everything is inside.
  std::string to_string() const;
};

using KeyTarget =
    std::variant<bool*, int64_t*, double*, std::string*, std::vector<double>*>;

using KeyAlias = std::pair<std::string, std::string>;

/// A key of the configuration: where its value goes and what it may be.
struct Key {
  std::string name; ///< "section.key"
  KeyTarget target;
  std::string help;
  Range range = {}; ///< of a list: of each number
  /// Of a text or number; empty: any.
  std::vector<std::string> choices = {};
  /// Other names of choices, each with the choice that is stored in its place.
  std::vector<KeyAlias> aliases = {};
  /// Whether a text that ends in ".toml" is as good as a choice.
  bool or_toml_file = false;
  /// The values of "section.name" that the key is for; empty: all.
  std::vector<std::string> only_of = {};

  /// Whether the present value is allowed.
  bool allows_value() const;
  /// "an integer >= 0", "one of adamw, sgd".
  std::string expected() const;
  /// The present value as TOML.
  std::string value() const;
};

/// "a, b and c"; not for nothing.
std::string listed(const std::vector<std::string>& names);

/// The one list of all keys, pointing into `config`.
std::vector<Key> keys_of(RunConfig& config);

/// The key among `known` that is nearest to a mistyped one; empty if none is
/// near. The right name in the wrong section is nearest of all.
std::string nearest_key(
    const std::string& typed, const std::vector<std::string>& known);

} // namespace ampkit::zoo
