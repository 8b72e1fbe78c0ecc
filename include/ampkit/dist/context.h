#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Generator.h>
#include <c10/util/intrusive_ptr.h>

#include <ampkit/dist/launch_environment.h>
#include <ampkit/export.h>

namespace c10d {
class ProcessGroup;
class Store;
} // namespace c10d

namespace ampkit::dist {

/// Settings of init().
struct AMPKIT_API InitOptions {
  /// How long a collective may wait for the other ranks; > 0.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// How long all of them may take to start; > 0.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
  /// The network interface for tensors, as "eth0". Empty: loopback if all ranks
  /// are on one machine, else GLOO_SOCKET_IFNAME, else the one that this
  /// machine's own name leads to.
  std::string interface;
  /// Compare the collectives of all ranks before each one, and throw, with what
  /// two of them wanted, where they differ; otherwise a mismatch hangs, mixes
  /// up tensors or ends the process inside Gloo. One more exchange a
  /// collective. Rank 0's setting counts for all; AMPKIT_DIST_CHECK=1 and
  /// TORCH_DISTRIBUTED_DEBUG=DETAIL set it.
  bool check_collectives = false;
  /// Other ranks are Python programs that call torch.distributed.
  /// init_process_group("gloo"): meet them as they meet each other. Ranks are
  /// not watched then, missing ones are not named, collectives are not checked
  /// and init() is called once, since Python's side does nothing of that.
  bool with_python = false;
  /// Told, in a thread of its own, which rank was lost and what it did: "rank 1
  /// was lost, last heard of at step 12, in or after collective 345, ...". For
  /// a program that must end soon even if its threads need no collective for
  /// long.
  std::function<void(const std::string& lost)> on_lost_rank;

  /// Throws c10::ValueError, naming the field, if one is out of range.
  void check() const;
};

/// This rank's place among the others, and its connections to them.
///
///     auto context = ampkit::dist::init();
///     context.manual_seed(seed);
///     ...
///     context.barrier();   // so that no rank leaves while others need it
///
/// A handle: copies share the connections, and the last one closes them. For
/// collectives include <torch/csrc/distributed/c10d/ProcessGroup.hpp> and use
/// process_group(). All ranks must call the same ones in the same order, with
/// tensors of the same shapes and dtypes.
class AMPKIT_API Context {
 public:
  struct Impl;
  explicit Context(std::shared_ptr<Impl> impl);

  int rank() const;
  int world_size() const;
  /// Among the ranks of this machine: the number of the GPU to use.
  int local_rank() const;
  const LaunchEnvironment& environment() const;

  /// Gloo on CPU tensors. Valid while a copy of this context lives.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;

  /// A key-value store of this group. Rank 0, or the launcher, keeps it.
  const c10::intrusive_ptr<c10d::Store>& store() const;

  /// Waits until every rank has come here.
  void barrier() const;

  /// Closes the connections, so that a collective that another rank waits in
  /// fails there at once, with `why` in its message. For a rank that gives up.
  void abort(const std::string& why = "") const;

  /// The step of the training that begins: what others are told this rank was
  /// at if it is lost. Without it, DistributedDataParallel counts its passes.
  void at_step(int64_t step) const;

  /// The random numbers of CPU ops on this rank: LibTorch's own generator in a
  /// process, one of its own in a thread of spawn_threads().
  at::Generator generator() const;

  /// Seeds generator() and, in a process, those of the GPUs. In a thread of
  /// spawn_threads() use this instead of torch::manual_seed(), which reaches
  /// the generator that all threads of the process share.
  void manual_seed(uint64_t seed) const;

 private:
  friend struct ContextAccess;
  std::shared_ptr<Impl> impl_;
};

/// Finds the other ranks as read_launch_environment() says, and connects to
/// them. Each rank of the job must call it, as often as the others.
///
/// From then on ranks watch each other. When one is killed, stopped, or ends by
/// an exception, the collectives of all others fail within 10 s with a
/// c10::DistBackendError that names it, its last step and its last collective.
/// The last copy of a Context that goes while an exception is under way tells
/// the others so. A rank whose collectives take longer than timeout, though all
/// live, fails with what each of them is doing.
///
/// Where all ranks are on one machine, and the launcher keeps no store of its
/// own, no port is opened beyond loopback. Over several machines the store
/// listens on every interface of rank 0's machine, and neither it nor the
/// tensors' connections know who calls: use a network of your own.
///
/// Ignores SIGPIPE from then on, unless the program has a handler for it: the
/// libraries below write to connections that others may have closed.
///
/// Throws c10::ValueError if a variable or option is missing or wrong;
/// c10::DistStoreError if rank 0 can't be reached or ranks are missing at the
/// end of start_timeout, naming them, if two processes claim one rank, or if
/// ranks disagree on the world's size; c10::DistNetworkError if they can't be
/// connected.
AMPKIT_API Context init(const InitOptions& options = {});

/// The same for what `environment` says.
AMPKIT_API Context
init(const LaunchEnvironment& environment, const InitOptions& options = {});

} // namespace ampkit::dist
