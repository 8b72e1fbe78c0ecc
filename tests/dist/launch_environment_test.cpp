#include <map>

#include <ampkit/dist/launch_environment.h>

#include "dist/slurm.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

using Environment = std::map<std::string, std::string>;

LaunchEnvironment launched(const Environment& environment) {
  return read_launch_environment(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt
                                          : std::optional(found->second);
      });
}

Environment changed(
    Environment environment, const std::string& name, const char* value) {
  environment.erase(name);
  if (value != nullptr) {
    environment[name] = value;
  }
  return environment;
}

// As torchrun sets them, two nodes of two.
const Environment kTorchrun{
    {"RANK", "3"},
    {"WORLD_SIZE", "4"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "2"},
    {"MASTER_ADDR", "node0"},
    {"MASTER_PORT", "29512"},
    {"TORCHELASTIC_RESTART_COUNT", "2"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

// As srun sets them: three nodes, of which the last has one task.
const Environment kSlurm{
    {"SLURM_JOB_ID", "4711"},
    {"SLURM_STEP_ID", "0"},
    {"SLURM_PROCID", "3"},
    {"SLURM_STEP_NUM_TASKS", "5"},
    {"SLURM_LOCALID", "1"},
    {"SLURM_NODEID", "1"},
    {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
    {"SLURM_STEP_NODELIST", "rack2-n[07-08],login"}};

const Environment kOpenMpi{
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "1152122881"}};

const Environment kPmi{
    {"PMI_RANK", "2"},
    {"PMI_SIZE", "3"},
    {"MPI_LOCALRANKID", "2"},
    {"MPI_LOCALNRANKS", "3"}};

TEST(LaunchEnvironmentTest, NothingSetIsOneProcess) {
  const auto found = launched({{"MASTER_ADDR", "node0"}});
  EXPECT_EQ(found.launcher, Launcher::none);
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.world_size, 1);
  EXPECT_TRUE(found.on_one_machine());
}

TEST(LaunchEnvironmentTest, Torchrun) {
  const auto found = launched(kTorchrun);
  EXPECT_EQ(found.launcher, Launcher::torchrun);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_world_size, 2);
  EXPECT_EQ(found.master_addr, "node0");
  EXPECT_EQ(found.master_port, 29512);
  EXPECT_EQ(found.restart_count, 2);
  EXPECT_TRUE(found.launcher_keeps_store);
  EXPECT_FALSE(found.on_one_machine());
}

TEST(LaunchEnvironmentTest, VariablesOfTorchrunSetByHand) {
  Environment by_hand{
      {"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "29500"}};
  EXPECT_TRUE(launched(by_hand).on_one_machine());
  EXPECT_FALSE(launched(by_hand).launcher_keeps_store);
  by_hand["MASTER_ADDR"] = "node0";
  EXPECT_FALSE(launched(by_hand).on_one_machine());
}

TEST(LaunchEnvironmentTest, MissingVariableOfTorchrunIsNamed) {
  for (const std::string name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_ERROR(
        launched(changed(kTorchrun, name, nullptr)),
        c10::ValueError,
        "dist::init: " + name + " must be set under torchrun, got none");
  }
}

TEST(LaunchEnvironmentTest, ContradictionNamesBothVariables) {
  EXPECT_ERROR(
      launched(changed(kTorchrun, "RANK", "4")),
      c10::ValueError,
      "RANK must be in [0, 3] because of WORLD_SIZE = 4, got 4");
  EXPECT_ERROR(
      launched(changed(kTorchrun, "LOCAL_RANK", "2")),
      c10::ValueError,
      "LOCAL_RANK must be in [0, 1] because of LOCAL_WORLD_SIZE = 2, got 2");
  EXPECT_ERROR(
      launched(changed(kTorchrun, "LOCAL_WORLD_SIZE", "5")),
      c10::ValueError,
      "LOCAL_WORLD_SIZE must be in [1, 4]");
  EXPECT_ERROR(
      launched(changed(kOpenMpi, "OMPI_COMM_WORLD_RANK", "2")),
      c10::ValueError,
      "OMPI_COMM_WORLD_RANK",
      "because of OMPI_COMM_WORLD_SIZE = 2, got 2");
  EXPECT_ERROR(
      launched(changed(kSlurm, "SLURM_LOCALID", "2")),
      c10::ValueError,
      "SLURM_LOCALID must be in [0, 1]");
  EXPECT_ERROR(
      launched(changed(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "2(x3)")),
      c10::ValueError,
      "SLURM_STEP_TASKS_PER_NODE must add up to SLURM_STEP_NUM_TASKS = 5",
      "2(x3)");
}

TEST(LaunchEnvironmentTest, WhatIsNoNumberIsQuoted) {
  for (const auto* value : {"two", "1.5", " 1", "1x", "99999999999"}) {
    EXPECT_ERROR(
        launched(changed(kTorchrun, "WORLD_SIZE", value)),
        c10::ValueError,
        std::string("WORLD_SIZE must be a whole number, got '") + value);
  }
  for (const auto* value : {"0", "65536", "-1"}) {
    EXPECT_ERROR(
        launched(changed(kTorchrun, "MASTER_PORT", value)),
        c10::ValueError,
        "MASTER_PORT must be in [1, 65535]");
  }
}

TEST(LaunchEnvironmentTest, Slurm) {
  const auto found = launched(kSlurm);
  EXPECT_EQ(found.launcher, Launcher::slurm);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.world_size, 5);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_world_size, 2);
  EXPECT_EQ(found.master_addr, "rack2-n07");
  EXPECT_GE(found.master_port, 20000);
  EXPECT_LT(found.master_port, 30000);
  EXPECT_FALSE(found.on_one_machine());
}

TEST(LaunchEnvironmentTest, SlurmOnOneNodeStaysOnLoopback) {
  auto environment = changed(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "5");
  environment.erase("SLURM_STEP_NODELIST");
  const auto found = launched(environment);
  EXPECT_TRUE(found.on_one_machine());
  EXPECT_EQ(found.master_addr, "127.0.0.1");
}

TEST(LaunchEnvironmentTest, SlurmWithoutNodesNamesTheVariable) {
  EXPECT_ERROR(
      launched(changed(kSlurm, "SLURM_STEP_NODELIST", nullptr)),
      c10::ValueError,
      "SLURM_STEP_NODELIST must be set under srun");
  EXPECT_ERROR(
      launched(changed(kSlurm, "SLURM_STEP_NODELIST", "a;b")),
      c10::ValueError,
      "SLURM_STEP_NODELIST must list hosts, got 'a;b'");
  const auto master = changed(
      changed(kSlurm, "SLURM_STEP_NODELIST", nullptr), "MASTER_ADDR", "me");
  EXPECT_EQ(launched(master).master_addr, "me");
}

// It has SLURM_PROCID and SLURM_NTASKS, but srun did not start it: waiting for
// the other tasks would be for ever.
TEST(LaunchEnvironmentTest, SlurmBatchScriptIsOneProcess) {
  const auto found = launched(
      {{"SLURM_JOB_ID", "4711"},
       {"SLURM_PROCID", "0"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_NTASKS", "4"}});
  EXPECT_EQ(found.launcher, Launcher::none);
  EXPECT_EQ(found.world_size, 1);
}

TEST(LaunchEnvironmentTest, MpirunInsideSlurmCountsItsOwnRanks) {
  auto environment = kOpenMpi;
  environment.insert(kSlurm.begin(), kSlurm.end());
  const auto found = launched(environment);
  EXPECT_EQ(found.launcher, Launcher::open_mpi);
  EXPECT_EQ(found.world_size, 2);
}

TEST(LaunchEnvironmentTest, TorchrunComesBeforeAllOthers) {
  auto environment = kTorchrun;
  for (const auto& other : {kSlurm, kOpenMpi, kPmi}) {
    environment.insert(other.begin(), other.end());
  }
  EXPECT_EQ(launched(environment).launcher, Launcher::torchrun);
}

TEST(LaunchEnvironmentTest, OpenMpiOnOneMachine) {
  const auto found = launched(kOpenMpi);
  EXPECT_EQ(found.launcher, Launcher::open_mpi);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  auto other = launched(changed(kOpenMpi, "PMIX_NAMESPACE", "1152122882"));
  EXPECT_NE(found.master_port, other.master_port);
  other = launched(changed(kOpenMpi, "MASTER_PORT", "1234"));
  EXPECT_EQ(other.master_port, 1234);
}

TEST(LaunchEnvironmentTest, MpiOverMachinesNeedsAMaster) {
  const auto two_machines = changed(
      changed(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "0");
  EXPECT_ERROR(
      launched(two_machines),
      c10::ValueError,
      "MASTER_ADDR must be set, to the address of rank 0, under mpirun");
  EXPECT_EQ(
      launched(changed(two_machines, "MASTER_ADDR", "node0")).master_addr,
      "node0");
}

TEST(LaunchEnvironmentTest, Pmi) {
  const auto found = launched(kPmi);
  EXPECT_EQ(found.launcher, Launcher::pmi);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.world_size, 3);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_ERROR(
      launched(changed(kPmi, "MPI_LOCALNRANKS", nullptr)),
      c10::ValueError,
      "MPI_LOCALNRANKS must be set under mpiexec");
}

TEST(SlurmTest, FirstHostOfANodeList) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("n[007-012,3]"), "n007");
  EXPECT_EQ(first_slurm_host("gpu-[3,5].cluster.org,x"), "gpu-3.cluster.org");
  EXPECT_EQ(first_slurm_host("rack[2-3]n[11,12]"), "rack2n11");
  for (const auto* wrong : {"", "n[", "n[a]", "a b", ",a"}) {
    EXPECT_EQ(first_slurm_host(wrong), "") << wrong;
  }
}

TEST(SlurmTest, TasksOfEachNode) {
  EXPECT_EQ(slurm_tasks_per_node("4"), std::vector{4});
  EXPECT_EQ(slurm_tasks_per_node("2(x3),1"), (std::vector{2, 2, 2, 1}));
  for (const auto* wrong : {"", "x", "2(3)", "2,,1", "-1"}) {
    EXPECT_TRUE(slurm_tasks_per_node(wrong).empty()) << wrong;
  }
}

} // namespace
} // namespace ampkit::dist
