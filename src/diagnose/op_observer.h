#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "diagnose/frame.h"
#include "diagnose/named_tensors.h"
#include "diagnose/op_traits.h"
#include "diagnose/tape.h"
#include "kernels/no_autocast.h"

namespace ampkit::diagnose {

/// What an observer does itself is not recorded, cast or differentiated.
struct Unobserved {
  at::RecordFunctionGuard no_records{false};
  NoAutocast no_autocast;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
};

/// Writes the tape of one step from what LibTorch records of each op. The ops
/// may run on several threads: those of the backward pass of a GPU.
class OpObserver : public c10::DebugInfoBase,
                   public std::enable_shared_from_this<OpObserver> {
 public:
  /// What is asked of tensors on a device: wait for an answer at once, or leave
  /// it there (Tape::pending).
  enum class Reading : uint8_t { at_once, deferred };

  /// `defer_all`: those on the CPU too.
  OpObserver(
      std::shared_ptr<const NamedTensors> names,
      Reading reading,
      bool defer_all = false);
  ~OpObserver() override;

  /// Begins to see the ops of this thread, and of the backward passes that it
  /// starts, until detach() on the same thread. Throws c10::Error if the thread
  /// has an observer already.
  static void attach(const std::shared_ptr<OpObserver>& observer);
  void detach();

  /// The tensor is a batch's: bad values in it are not an op's fault.
  int32_t add_input(const at::Tensor& tensor, int32_t number);
  void add_sink(Sink::Kind kind, const at::Tensor& tensor, int32_t name = -1);
  /// Whether an op of this step read it, and it was finite then.
  bool saw_finite(const at::Tensor& tensor);
  void set_micro_batch(int64_t micro_batch);
  bool deferred() const { return reading_ == Reading::deferred; }

  Tape& tape() { return tape_; }

  // Called by the record's callbacks.
  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& fn);
  void end(const at::RecordFunction& fn, Frame& frame);

 private:
  int32_t value_of(const at::Tensor& tensor);
  int32_t new_source(const at::Tensor& tensor);
  int32_t new_intermediate(const at::Tensor& tensor, const Frame& user);
  int32_t new_value(const at::Tensor& tensor, int32_t op, bool uninitialised);
  int32_t hold(const at::Tensor& tensor, const TapeValue& value);
  /// -1: none.
  int32_t held_by(const at::Tensor& tensor) const;
  bool writes_into(int32_t op, int32_t value) const;
  bool reads_at_once(const at::Tensor& tensor) const;
  void read_flags(const at::Tensor& tensor, TapeValue& value);

  void note_inputs(const at::RecordFunction& fn, Frame& frame);
  void note_input(const c10::IValue& argument, Frame& frame);
  void note_tensor(const at::Tensor& tensor, Frame& frame);
  void note_forward(const at::RecordFunction& fn, Frame& frame);
  void note_node(const at::RecordFunction& fn, Frame& frame);

  void note_output(const at::Tensor& tensor, const Frame& frame);
  bool is_known(const at::Tensor& tensor, const Frame& frame) const;
  bool inner_op_saw_it(const at::Tensor& tensor, const Frame& frame);
  void look_at_suspect(const at::Tensor& output, const Frame& frame);
  int32_t new_op(const Frame& frame);

  void look_for_birth(const at::Tensor& output, const Frame& frame, TapeOp& op);
  void doubt_inputs(const Frame& frame, const Evidence& evidence);
  void look_for_lost_values(
      const at::Tensor& output, const Frame& frame, TapeOp& op);

  const std::shared_ptr<const NamedTensors> names_;
  const Reading reading_;
  const bool defer_all_;
  std::mutex mutex_;
  Tape tape_;
  OpTraitsCache traits_;
  // What a storage holds now. The weak reference keeps its address from being
  // used again, not its memory.
  struct Held {
    int32_t value = -1;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  std::unordered_map<const c10::StorageImpl*, Held> by_storage_;
  std::unordered_map<int64_t, int32_t> by_sequence_; // Tape::forward
  int64_t micro_batch_ = 0;
  int32_t last_module_ = -1;
  int evidence_left_ = 32; // births looked at closely, a step
  int replays_left_ = 8; // of ops that may have lost small values
  bool lost_ = false; // one has
  int32_t root_ = -1; // value of which ones_like() was taken last
  at::CallbackHandle handle_ = 0;
};

inline const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

} // namespace ampkit::diagnose
