#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::optim {

/// Averages of a module's weights over training steps, made by update() and
/// looked at by swap_in(); what ExponentialMovingAverage and
/// StochasticWeightAverage have in common.
///
/// Averages of 16-bit weights are fp32, since 16 bits would absorb the small
/// moves. Tied parameters count once. Does not wait for the device. The
/// module's tensors are those that it had when this was made. Not thread-safe.
class AMPKIT_API AveragedWeights {
 public:
  virtual ~AveragedWeights() = default;
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

  /// Takes the weights into the averages; the first update copies them. Throws
  /// c10::Error while the averages are swapped in.
  void update();

  /// While it lives, the module holds the averages, rounded to its dtypes; then
  /// what it held before, weights and buffers, to the last bit. Before the
  /// first update it shows the weights themselves.
  class AMPKIT_API Swap {
   public:
    Swap(Swap&& other) noexcept;
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;
    Swap& operator=(Swap&&) = delete;
    ~Swap();

   private:
    friend class AveragedWeights;
    explicit Swap(AveragedWeights& owner);
    AveragedWeights* owner_;
    std::vector<at::Tensor> before_;
  };

  /// Throws c10::Error if they are swapped in already. The result must not
  /// outlive this object.
  [[nodiscard]] Swap swap_in();

  /// Updates so far.
  int64_t updates() const { return updates_; }

  /// Number of updates and averages, under the names of the module. Tensors are
  /// shared: to freeze them, clone.
  io::StateDict state_dict() const;

  /// Throws c10::Error, having changed nothing, with all that does not fit.
  void load_state_dict(const io::StateDict& state);

 protected:
  /// `kind`: name for messages. Throws c10::ValueError if there is no
  /// parameter. Buffers are averaged if `use_buffers`.
  AveragedWeights(
      const char* kind, const torch::nn::Module& module, bool use_buffers);

  /// Moves `averages` towards `sources`: as many floating-point or complex
  /// tensors of one device and dtype.
  virtual void move(
      std::vector<at::Tensor>& averages,
      const std::vector<at::Tensor>& sources) const = 0;
  /// The next average of integers or flags.
  virtual at::Tensor next_integers(
      const at::Tensor& average, const at::Tensor& source) const = 0;

 private:
  struct Entry {
    std::string name;
    at::Tensor source; // of the module
    at::Tensor average;
  };

  void add(const std::string& name, const at::Tensor& source);
  void move_averages();
  std::vector<at::Tensor> module_tensors() const;
  std::string misfits(const io::StateDict& state) const;

  const char* kind_;
  std::vector<Entry> entries_;
  std::vector<at::Tensor> other_buffers_; // of the module, not averaged
  int64_t updates_ = 0;
  bool swapped_ = false;
};

} // namespace ampkit::optim
