#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ampkit/export.h>

namespace ampkit::dist {

/// Who started the ranks.
enum class Launcher {
  none, // nobody: this process is alone
  torchrun, // or anything else that sets its variables, as `ampkit run`
  slurm, // srun
  open_mpi, // its mpirun
  pmi, // mpiexec of MPICH, Intel MPI and their kin
  threads, // spawn_threads()
};

/// "torchrun", "srun", ...: as messages call it.
AMPKIT_API std::string to_string(Launcher launcher);

/// Which of how many ranks this process is, and where the ranks meet.
struct AMPKIT_API LaunchEnvironment {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int world_size = 1;
  /// Among the ranks on this machine: the number of the GPU to use.
  int local_rank = 0;
  /// Ranks on this machine; 0 if that was not said.
  int local_world_size = 1;
  /// Where rank 0 keeps the store; port 0: any, for one process.
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;
  /// How often the launcher has started the ranks anew.
  int restart_count = 0;
  /// The launcher itself keeps the store, and rank 0 must not.
  bool launcher_keeps_store = false;

  /// Whether all ranks are known to be on this machine, so that they need no
  /// network interface but loopback.
  bool on_one_machine() const;
};

/// The value of an environment variable; none if it is unset or empty.
using ReadVariable =
    std::function<std::optional<std::string>(const std::string& name)>;

/// What the launcher says of this process. Tried in this order:
///
/// 1. torchrun, if RANK, WORLD_SIZE or LOCAL_RANK is set. RANK, WORLD_SIZE,
///    LOCAL_RANK, MASTER_ADDR and MASTER_PORT must be; LOCAL_WORLD_SIZE,
///    TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_USE_AGENT_STORE may be.
/// 2. srun: SLURM_PROCID and SLURM_STEP_NUM_TASKS, SLURM_LOCALID, and where
///    there are several nodes SLURM_STEP_NODELIST, whose first one is the
///    master, and SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID. Not of a batch
///    script itself, which has SLURM_PROCID too but was not started by srun;
///    nor if mpirun's variables are there, which starts its daemons by srun.
/// 3. Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE.
/// 4. PMI: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS.
/// 5. One process, which looks for nobody.
///
/// With 2 to 4 MASTER_ADDR and MASTER_PORT win where they are set. Otherwise
/// the port comes from the number of the job, in 20000 to 29999, and on one
/// machine the address is 127.0.0.1; mpirun and mpiexec over several machines
/// need MASTER_ADDR.
///
/// Throws c10::ValueError, naming the variable, if one that is needed is
/// missing, is no number, or contradicts another.
///
/// Sources: https://docs.pytorch.org/docs/stable/elastic/run.html,
/// https://slurm.schedmd.com/srun.html,
/// https://www.open-mpi.org/faq/?category=running
AMPKIT_API LaunchEnvironment read_launch_environment(const ReadVariable& read);

/// The same of this process' environment.
AMPKIT_API LaunchEnvironment read_launch_environment();

} // namespace ampkit::dist
