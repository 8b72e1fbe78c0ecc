#include <ampkit/dist/launch_environment.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include <c10/util/Exception.h>

#include "dist/loopback.h"
#include "dist/slurm.h"
#include "dist/variables.h"

namespace ampkit::dist {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxPort = 65535;
// Below the ports that Linux hands out by itself, which begin at 32768.
constexpr int kFirstJobPort = 20000;
constexpr int kJobPorts = 10000;

bool is_loopback(const std::string& address) {
  return address == "::1" || is_ipv4_loopback(address);
}

// FNV-1a: the same number in each process of a job, which std::hash need not
// be.
uint32_t hash_of(const std::string& text) {
  uint32_t hash = 2166136261U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return hash;
}

void read_ranks(
    const Variables& variables,
    const std::string& rank,
    const std::string& size,
    LaunchEnvironment& result) {
  result.world_size = variables.number(size, 1, kMaxRanks);
  result.rank = variables.number(
      rank,
      0,
      result.world_size - 1,
      size + " = " + std::to_string(result.world_size));
}

void read_local_ranks(
    const Variables& variables,
    const std::string& rank,
    const std::string& size,
    LaunchEnvironment& result) {
  result.local_world_size = variables.number(
      size,
      1,
      result.world_size,
      "a world of " + std::to_string(result.world_size));
  result.local_rank = variables.number(
      rank,
      0,
      result.local_world_size - 1,
      size + " = " + std::to_string(result.local_world_size));
}

LaunchEnvironment from_torchrun(const ReadVariable& read) {
  const Variables variables(read, Launcher::torchrun);
  LaunchEnvironment result{.launcher = Launcher::torchrun};
  read_ranks(variables, "RANK", "WORLD_SIZE", result);
  result.master_addr = variables.text("MASTER_ADDR");
  result.master_port =
      static_cast<uint16_t>(variables.number("MASTER_PORT", 1, kMaxPort));
  if (variables.has("LOCAL_WORLD_SIZE")) {
    read_local_ranks(variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE", result);
  } else {
    result.local_world_size =
        is_loopback(result.master_addr) ? result.world_size : 0;
    result.local_rank = variables.number(
        "LOCAL_RANK", 0, result.rank, "RANK = " + std::to_string(result.rank));
  }
  result.restart_count = variables.number_or(
      "TORCHELASTIC_RESTART_COUNT", 0, 0, std::numeric_limits<int>::max());
  result.launcher_keeps_store =
      read("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  return result;
}

// `job` names the variables that may hold the number of the job.
void read_master(
    const Variables& variables,
    const std::string& address,
    const std::vector<std::string>& job,
    LaunchEnvironment& result) {
  result.master_addr =
      variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : address;
  TORCH_CHECK_VALUE(
      !result.master_addr.empty(),
      "dist::init: MASTER_ADDR must be set, to the address of rank 0, under ",
      to_string(result.launcher),
      " over several machines, got none");
  std::string id;
  for (const auto& name : job) {
    id += variables.has(name) ? variables.text(name) + "." : "";
  }
  const int port = kFirstJobPort + static_cast<int>(hash_of(id) % kJobPorts);
  result.master_port = static_cast<uint16_t>(
      variables.number_or("MASTER_PORT", port, 1, kMaxPort));
}

// On this node; 0 if SLURM does not say.
int slurm_local_size(const Variables& variables, int world_size) {
  if (!variables.has("SLURM_STEP_TASKS_PER_NODE")) {
    return 0;
  }
  const auto text = variables.text("SLURM_STEP_TASKS_PER_NODE");
  const auto tasks = slurm_tasks_per_node(text);
  int64_t sum = 0;
  for (const int count : tasks) {
    sum += count;
  }
  TORCH_CHECK_VALUE(
      sum == world_size,
      "dist::init: SLURM_STEP_TASKS_PER_NODE must add up to "
      "SLURM_STEP_NUM_TASKS = ",
      world_size,
      ", got '",
      text,
      "'");
  const int nodes = static_cast<int>(tasks.size());
  const int node = nodes == 1 ? 0
                              : variables.number(
                                    "SLURM_NODEID",
                                    0,
                                    nodes - 1,
                                    "SLURM_STEP_TASKS_PER_NODE = " + text);
  return tasks[static_cast<size_t>(node)];
}

LaunchEnvironment from_slurm(const ReadVariable& read) {
  const Variables variables(read, Launcher::slurm);
  LaunchEnvironment result{.launcher = Launcher::slurm};
  read_ranks(variables, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", result);
  result.local_world_size = slurm_local_size(variables, result.world_size);
  const int most =
      result.local_world_size > 0 ? result.local_world_size - 1 : result.rank;
  result.local_rank =
      variables.number("SLURM_LOCALID", 0, most, "the tasks on this node");
  std::string address = "127.0.0.1";
  if (!result.on_one_machine() && !variables.has("MASTER_ADDR")) {
    const auto list = variables.text("SLURM_STEP_NODELIST");
    address = first_slurm_host(list);
    TORCH_CHECK_VALUE(
        !address.empty(),
        "dist::init: SLURM_STEP_NODELIST must list hosts, got '",
        list,
        "'");
  }
  read_master(variables, address, {"SLURM_JOB_ID", "SLURM_STEP_ID"}, result);
  return result;
}

LaunchEnvironment from_mpi(
    const Variables& variables,
    LaunchEnvironment result,
    const std::vector<std::string>& job) {
  const bool open_mpi = result.launcher == Launcher::open_mpi;
  const std::string world = open_mpi ? "OMPI_COMM_WORLD_" : "PMI_";
  read_ranks(variables, world + "RANK", world + "SIZE", result);
  if (open_mpi) {
    read_local_ranks(
        variables, world + "LOCAL_RANK", world + "LOCAL_SIZE", result);
  } else {
    read_local_ranks(variables, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", result);
  }
  read_master(
      variables, result.on_one_machine() ? "127.0.0.1" : "", job, result);
  return result;
}

} // namespace

std::string to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::slurm:
      return "srun";
    case Launcher::open_mpi:
      return "mpirun";
    case Launcher::pmi:
      return "mpiexec (PMI)";
    case Launcher::threads:
      return "spawn_threads";
  }
  return "an unknown launcher";
}

bool LaunchEnvironment::on_one_machine() const {
  return local_world_size == world_size;
}

LaunchEnvironment read_launch_environment(const ReadVariable& read) {
  const auto any = [&](std::initializer_list<const char*> names) {
    for (const auto* name : names) {
      if (read(name)) {
        return true;
      }
    }
    return false;
  };
  if (any({"RANK", "WORLD_SIZE", "LOCAL_RANK"})) {
    return from_torchrun(read);
  }
  const bool mpirun = any({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  if (read("SLURM_PROCID") && read("SLURM_STEP_NUM_TASKS") && !mpirun) {
    return from_slurm(read);
  }
  if (mpirun) {
    return from_mpi(
        Variables(read, Launcher::open_mpi),
        {.launcher = Launcher::open_mpi},
        {"PMIX_NAMESPACE"});
  }
  if (any({"PMI_RANK", "PMI_SIZE"})) {
    return from_mpi(
        Variables(read, Launcher::pmi),
        {.launcher = Launcher::pmi},
        {"PMI_JOBID", "PMI_PORT"});
  }
  return {};
}

LaunchEnvironment read_launch_environment() {
  return read_launch_environment(
      [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr || *value == '\0') {
          return std::nullopt;
        }
        return value;
      });
}

} // namespace ampkit::dist
