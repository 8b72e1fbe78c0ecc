#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/DeviceType.h>

#include <ampkit/export.h>

namespace ampkit {

struct CompiledOps;

/// What an op does with its floating-point inputs in an autocast region.
/// Float64 and integer inputs are never touched.
enum class OpRule : uint8_t {
  inputs, ///< runs in the dtypes it is given
  lower_precision, ///< casts them to the region's dtype
  float32, ///< casts 16-bit ones to float32
  promote, ///< casts all to float32 if one is float32, else to the region's
  refuse, ///< throws, because no 16-bit or mixed run of it is safe
};

/// "inputs", "lower-precision", "float32", "promote", "refuse".
AMPKIT_API std::string to_string(OpRule rule);

/// Reverse of to_string(). Throws c10::ValueError that lists the valid names.
AMPKIT_API OpRule parse_op_rule(std::string_view name);

/// The rule of one op on one device type, and why.
struct OpPolicyEntry {
  std::string op; ///< "softmax.int"; ops outside aten: "mylib::op"
  OpRule rule = OpRule::inputs;
  std::string reason;
};

/// Which op runs in which dtype inside an ampkit::Autocast region.
///
///     auto ops = ampkit::OpPolicy::strict();
///     ops.set("gelu", ampkit::OpRule::float32, "saturates in my network");
///     ampkit::Autocast autocast(device, precision, {.ops = ops});
///
/// Two bases. `pytorch`: exactly LibTorch's autocast lists of each device type.
/// `strict`: those, and the same on every device: softmax, log_softmax, all
/// losses, all norm layers, exp, log, pow and their like, and reductions over
/// many elements in float32. Stock CPU autocast runs most of these in 16 bits;
/// attention and convolutions stay in low precision, their kernels sum in
/// float32 inside.
///
/// Ops are named as in LibTorch's schemas, without "aten::"; "softmax" means
/// every overload that returns new tensors and "softmax.int" that one. In-place
/// and out= forms keep to their inputs' dtypes, as in PyTorch.
///
/// A value; copies share what they have in common. Reading is thread-safe.
class AMPKIT_API OpPolicy {
 public:
  /// The `pytorch` base.
  OpPolicy();

  static OpPolicy pytorch();
  static OpPolicy strict();

  /// "pytorch" or "strict". Throws c10::ValueError for another name.
  static OpPolicy parse(std::string_view base);

  /// Gives `op` a rule, on `device` or on CPU and CUDA both. Throws
  /// c10::ValueError, changing nothing, if LibTorch has no such op (with the
  /// nearest name) or it has no form that takes tensors and leaves them as they
  /// are.
  OpPolicy& set(
      std::string_view op,
      OpRule rule,
      std::string reason = {},
      std::optional<c10::DeviceType> device = std::nullopt);

  /// The rule of one op, e.g. "mm" or "softmax.int"; a name without overload
  /// means the first one that has a rule other than `inputs`. Throws
  /// c10::ValueError as set() does, and for a device that is not CPU or CUDA.
  OpPolicyEntry entry(std::string_view op, c10::DeviceType device) const;
  OpRule rule(std::string_view op, c10::DeviceType device) const;

  /// Every op that has a rule other than `inputs`, or was given one by set(),
  /// by name.
  std::vector<OpPolicyEntry> entries(c10::DeviceType device) const;

  /// "pytorch" or "strict".
  const std::string& base() const;

  /// What set() changed, in the order of the calls.
  struct Edit {
    std::string op;
    OpRule rule = OpRule::inputs;
    std::string reason;
    std::optional<c10::DeviceType> device;
    bool operator==(const Edit&) const = default;
  };
  const std::vector<Edit>& edits() const;

  /// Same base, same edits.
  bool operator==(const OpPolicy& other) const;

 private:
  friend class Autocast;
  explicit OpPolicy(std::shared_ptr<const CompiledOps> compiled);
  std::shared_ptr<const CompiledOps> compiled_;
};

/// Says what an op that was defined with TORCH_LIBRARY takes inside
/// ampkit::Autocast regions on CPU and CUDA; without it such an op keeps to its
/// inputs' dtypes, and gets 16 bits where it may expect float32.
///
///     TORCH_LIBRARY(mylib, m) { m.def("scan(Tensor x) -> Tensor"); }
///     ampkit::annotate_op("mylib::scan", ampkit::OpRule::float32);
///
/// The counterpart of torch.library.register_autocast. An OpPolicy may override
/// it. Call it once, before other threads run the op. Throws c10::ValueError if
/// there is no such op, or c10::Error if the op has an autocast kernel of its
/// own.
AMPKIT_API void annotate_op(std::string_view op, OpRule rule);

} // namespace ampkit
