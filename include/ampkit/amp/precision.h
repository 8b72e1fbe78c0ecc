#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ampkit/export.h>

namespace ampkit {

/// The dtypes of a training run: one value describes it.
///
/// | preset      | compute | parameters | master | reduce | loss scaled |
/// |-------------|---------|------------|--------|--------|-------------|
/// | fp32        | fp32    | fp32       | -      | fp32   | no          |
/// | fp16-mixed  | fp16    | fp32       | -      | fp32   | yes         |
/// | bf16-mixed  | bf16    | fp32       | -      | fp32   | no          |
/// | fp16-master | fp16    | fp16       | fp32   | fp32   | yes         |
/// | bf16-master | bf16    | bf16       | fp32   | fp32   | no          |
/// | bf16-split  | bf16    | bf16       | split  | fp32   | no          |
/// | bf16-true   | bf16    | bf16       | -      | bf16   | no          |
/// | fp16-true   | fp16    | fp16       | -      | fp16   | no          |
/// | fp8-mixed   | fp8e4m3 | fp32       | -      | fp32   | yes         |
///
/// Buffers (running statistics) stay in fp32 in every preset. fp16-true is
/// there for inference and for measuring: fp16 weights absorb no small updates,
/// and small gradients underflow. A plain value type; comparing and copying are
/// cheap.
struct AMPKIT_API Precision {
  /// What autocast regions run their matrix products in.
  c10::ScalarType compute = c10::ScalarType::Float;
  /// What the module's floating-point parameters are stored in.
  c10::ScalarType parameters = c10::ScalarType::Float;
  /// What the optimizer keeps its own copy of the parameters in; none: it
  /// updates the parameters themselves.
  std::optional<c10::ScalarType> master;
  /// Keep the master as the parameter's bf16 plus the 16 bits below it.
  bool split_master = false;
  /// What gradients are summed in, over micro-batches and over ranks.
  c10::ScalarType reduce = c10::ScalarType::Float;
  /// What floating-point buffers are stored in.
  c10::ScalarType buffers = c10::ScalarType::Float;
  /// Whether the loss is multiplied by a dynamic scale before backward().
  bool scales_loss = false;

  static Precision fp32();
  static Precision fp16_mixed();
  static Precision bf16_mixed();
  static Precision fp16_master();
  static Precision bf16_master();
  static Precision bf16_split();
  static Precision bf16_true();
  static Precision fp16_true();
  static Precision fp8_mixed();

  /// The preset of that name, as in the table, or of an alias. Throws
  /// c10::ValueError that lists the valid names.
  static Precision parse(std::string_view name);

  /// The names of all presets, in the order of the table.
  static std::vector<std::string> names();

  /// Other libraries' names, each with the preset that it stands for:
  /// "32-true", "16-mixed", "bf16-mixed", "16-true" and "bf16-true" of PyTorch
  /// Lightning, "O0" (fp32), "O1" (fp16-mixed), "O2" (fp16-master) and "O3"
  /// (fp16-true) of apex. Those that are a preset's own name are left out.
  static std::vector<std::pair<std::string, std::string>> aliases();

  /// The preset's name, never an alias, or every field if this equals no
  /// preset.
  std::string to_string() const;

  /// Whether compute is narrower than fp32, so that an Autocast does anything.
  bool uses_autocast() const { return compute != c10::ScalarType::Float; }

  bool operator==(const Precision&) const = default;
};

AMPKIT_API std::ostream& operator<<(std::ostream& out, const Precision& value);

} // namespace ampkit
