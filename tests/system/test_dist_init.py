"""dist::init() under real launchers: torchrun, mpirun, and what srun sets."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

# What a launcher around the tests may have set.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC")


@pytest.fixture(scope="module")
def probe(build):
    return build / "tests" / "dist" / "rank_probe"


def environment(**variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return {**clean, "OMP_NUM_THREADS": "1", **variables}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def lines_of(text):
    return sorted(
        (json.loads(line) for line in text.splitlines() if line.startswith("{")),
        key=lambda line: line["rank"],
    )


def torchrun():
    return pathlib.Path(sys.executable).parent / "torchrun"


def check_ranks(text, launcher, size):
    lines = lines_of(text)
    assert [line["rank"] for line in lines] == list(range(size)), text
    for rank, line in enumerate(lines):
        assert line["launcher"] == launcher
        assert line["world_size"] == line["local_world_size"] == size
        assert line["local_rank"] == rank
        assert line["sum"] == size * (size + 1) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--standalone"], ["--nnodes", "1:2", "--rdzv-backend", "c10d"]]
)
def test_torchrun(probe, run, options):
    if "--standalone" not in options:
        options = [*options, "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    command = [torchrun(), *options, "--no-python", "--nproc-per-node", "3", probe]
    check_ranks(run(command, env=environment()).stdout, "torchrun", 3)


@pytest.mark.slow
def test_restart_by_torchrun_finds_the_ranks_again(probe, run, tmp_path):
    # The agent's store outlives the ranks: the second start must not meet what
    # the first one left there.
    script = tmp_path / "once.sh"
    script.write_text(
        f"""#!/bin/bash
        {probe} || exit
        [ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || exit 5
        """
    )
    script.chmod(0o755)
    command = [torchrun(), "--standalone", "--no-python", "--max-restarts", "1"]
    done = run([*command, "--nproc-per-node", "2", script], env=environment())
    counts = [line["restart_count"] for line in lines_of(done.stdout)]
    assert sorted(counts) == [0, 0, 1, 1]


def test_mpirun(probe, run):
    assert shutil.which("mpirun"), "scripts/setup.sh --tests installs openmpi-bin"
    command = ["mpirun", "--oversubscribe", "-np", "3", probe]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    check_ranks(run(command, env=environment()).stdout, "mpirun", 3)


def run_all(commands):
    """Starts (command, environment) pairs at once; gives their joint output."""
    processes = [
        subprocess.Popen(
            list(map(str, command)),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, env in commands
    ]
    results = [process.communicate(timeout=120)[0] for process in processes]
    statuses = [process.returncode for process in processes]
    return "".join(results), statuses


def slurm(rank, size, **variables):
    return environment(
        SLURM_JOB_ID=str(os.getpid()),
        SLURM_STEP_ID="0",
        SLURM_PROCID=str(rank),
        SLURM_STEP_NUM_TASKS=str(size),
        SLURM_NTASKS=str(size),
        SLURM_LOCALID=str(rank),
        SLURM_NODEID="0",
        SLURM_STEP_NODELIST="node[01]",
        SLURM_STEP_TASKS_PER_NODE=str(size),
        **variables,
    )


def test_what_srun_sets_on_one_node(probe):
    text, statuses = run_all([([probe], slurm(rank, 3)) for rank in range(3)])
    assert statuses == [0, 0, 0], text
    check_ranks(text, "srun", 3)


def test_what_srun_sets_on_two_nodes(probe):
    # Both are this machine, whose name is the first of the list.
    variables = {
        "SLURM_STEP_NODELIST": f"{socket.gethostname()},other",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_LOCALID": "0",
    }
    commands = [
        ([probe], {**slurm(rank, 2), **variables, "SLURM_NODEID": str(rank)})
        for rank in range(2)
    ]
    text, statuses = run_all(commands)
    assert statuses == [0, 0], text
    assert [line["local_rank"] for line in lines_of(text)] == [0, 0]


def test_batch_script_of_slurm_waits_for_nobody(probe, run):
    env = environment(SLURM_JOB_ID="1", SLURM_PROCID="0", SLURM_NTASKS="4")
    line = lines_of(run([probe], env=env).stdout)[0]
    assert (line["launcher"], line["world_size"]) == ("no launcher", 1)


def test_alone(probe, run):
    line = lines_of(run([probe], env=environment()).stdout)[0]
    assert (line["launcher"], line["world_size"], line["sum"]) == ("no launcher", 1, 1)


def test_missing_variable_is_named(probe, run):
    env = environment(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
    done = run([probe], status=1, env=env)
    assert "dist::init: MASTER_PORT must be set under torchrun, got none" in done.stdout


def by_hand(rank, size, port):
    return environment(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )


def test_missing_rank_is_named_to_the_others(probe):
    port = free_port()
    text, statuses = run_all([([probe, 2], by_hand(rank, 3, port)) for rank in (0, 2)])
    assert statuses == [1, 1], text
    assert text.count("not all ranks started within 2 s; missing: 1") == 2, text


def test_two_processes_of_one_rank_are_an_error(probe):
    port = free_port()
    text, statuses = run_all([([probe, 2], by_hand(rank, 3, port)) for rank in (0, 1, 1)])
    assert statuses == [1, 1, 1], text
    assert "another process says that it is this rank" in text
    assert "missing: 2" in text


def listening_addresses(process):
    """Of every socket on which a process listens, as /proc writes them."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        lines = pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()
        for fields in map(str.split, lines[1:]):
            if fields[3] == "0A" and fields[9] in inodes:  # listening, and its own
                found.append(fields[1].split(":")[0])
    return found


def test_one_machine_listens_on_loopback_only(probe, tmp_path):
    port, go_on = free_port(), tmp_path / "go_on"
    ranks = [
        subprocess.Popen(
            [probe, "60", go_on],
            env=by_hand(rank, 2, port),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            assert rank.stdout.readline().startswith("{")
        addresses = [listening_addresses(rank.pid) for rank in ranks]
    finally:
        go_on.touch()
        statuses = [rank.wait(timeout=60) for rank in ranks]
    assert statuses == [0, 0]
    assert len(addresses[0]) >= 1  # the store's at least
    loopback = "0100007F"  # 127.0.0.1
    assert {one for found in addresses for one in found} == {loopback}


def test_rank_0_that_comes_late_is_waited_for(probe):
    port = free_port()
    late = subprocess.Popen(
        [probe], env=by_hand(1, 2, port), stdout=subprocess.PIPE, text=True
    )
    time.sleep(2)
    first = subprocess.run([probe], env=by_hand(0, 2, port), timeout=60, check=False)
    assert (first.returncode, late.wait(timeout=60)) == (0, 0)
