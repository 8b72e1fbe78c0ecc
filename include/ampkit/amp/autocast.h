#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ampkit/amp/module_policy.h>
#include <ampkit/amp/op_policy.h>
#include <ampkit/amp/precision.h>
#include <ampkit/export.h>

namespace ampkit {

class Fp8Linears;
struct RegionPolicy;

/// Settings of an Autocast.
struct AutocastOptions {
  /// false: the region runs in the dtypes of its inputs, also inside another
  /// autocast region.
  bool enabled = true;
  /// Whether a weight is cast once a region instead of at each use.
  bool cache_enabled = true;
  /// Which op runs in which dtype; none: as in the region around this one, at
  /// the outermost as PyTorch does.
  std::optional<OpPolicy> ops;
  /// Which modules' ops run in which dtype; none: as in the region around.
  std::optional<BoundModulePolicy> modules;
  /// Runs products with its weights in FP8, where the op and module policies
  /// would run them in low precision; null: as in the region around.
  std::shared_ptr<Fp8Linears> fp8;
};

/// The autocast state of a thread, to be put in force on another one.
///
///     auto state = ampkit::AutocastState::current();
///     std::thread worker([state] {
///       ampkit::Autocast autocast(state);
///       ...
///     });
///
/// A plain value; copying it is cheap and thread-safe.
class AMPKIT_API AutocastState {
 public:
  /// What is in force on the calling thread.
  static AutocastState current();

 private:
  friend class Autocast;
  void restore() const;

  struct DeviceState {
    bool enabled = false;
    bool by_ampkit = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
  };
  std::array<DeviceState, 2> devices_; // CPU, CUDA
  bool cache_enabled_ = true;
  std::shared_ptr<const RegionPolicy> policy_;
};

/// Runs the matrix products, convolutions and attention of a scope in a 16-bit
/// dtype, and what needs more range or precision in FP32: op by op exactly as
/// torch.autocast does, on CPU and CUDA, or as an OpPolicy and a ModulePolicy
/// say.
///
///     {
///       ampkit::Autocast autocast(torch::kCPU, torch::kBFloat16);
///       loss = torch::mse_loss(model->forward(x), y);
///     }                  // before backward()
///
/// Weights stay as they are; each is cast once a region. Unlike the stock cache
/// that copy is found again through a view (nn::Linear uses weight.t()), is
/// renewed when the weight changes in place or a gradient has passed it, is
/// kept apart for each dtype and for grad mode, and never outlives the
/// outermost region. Writes to `.data()` or a raw pointer, which autograd
/// doesn't see, are therefore seen after a backward pass, or in the next
/// outermost region. Views of a weight are told apart by their geometry: a hook
/// registered on a temporary view itself is seen only where that view is the
/// first of the region.
///
/// Acts on the calling thread only; nests; its end restores all that it
/// changed, also when an exception leaves the scope. Guards must end in the
/// reverse order of their making, as scopes do. Never waits for the device.
///
/// The first guard of the process replaces LibTorch's autocast kernels by ones
/// that behave as before wherever no ampkit guard is in force.
///
/// Source: https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
class AMPKIT_API Autocast {
 public:
  /// `device`: CPU or CUDA; its index is ignored. `dtype`: Half, BFloat16, or
  /// Float, which is the same as {.enabled = false}. Throws c10::ValueError,
  /// changing nothing, for any other device or dtype.
  Autocast(
      c10::Device device,
      c10::ScalarType dtype,
      const AutocastOptions& options = {});

  /// With `precision.compute` as dtype. Where that is FP8, what doesn't run in
  /// FP8 runs in BFloat16; throws c10::ValueError then if `options.fp8` is null
  /// and no region around has one.
  Autocast(
      c10::Device device,
      const Precision& precision,
      const AutocastOptions& options = {});

  /// Puts in force what another thread had.
  explicit Autocast(const AutocastState& state);

  ~Autocast();

  Autocast(const Autocast&) = delete;
  Autocast(Autocast&&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  Autocast& operator=(Autocast&&) = delete;

  /// How many cast copies the calling thread holds at the moment.
  static int64_t cached_casts();

 private:
  void enter();

  AutocastState before_;
};

} // namespace ampkit
