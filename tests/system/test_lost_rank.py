"""A rank that dies, stops or throws: who ends, how soon, and what they say.

The ranks are started by hand, as a launcher that looks after nothing would.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file
from test_dist_init import environment, free_port

STEPS = 100_000  # more than any trial lasts
LIMIT_S = 10
SAYS_WHERE = r", last heard of at step \d+, in or after collective \d+, \w+"


@pytest.fixture
def ranks(build, tmp_path):
    """Starts fault_rank as ranks; what is left of them is killed."""
    started = []

    def start(count, *fault, steps=STEPS, **variables):
        port = free_port()
        program = build / "tests" / "dist" / "fault_rank"
        folder = tmp_path / str(port)
        folder.mkdir()
        for rank in range(count):
            env = environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(count),
                LOCAL_WORLD_SIZE=str(count),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                **variables,
            )
            command = [program, folder, steps, *fault]
            started.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    env=env,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return folder, started[-count:]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def step_of(folder, rank):
    try:
        return int((folder / f"rank-{rank}.step").read_text() or 0)
    except OSError:
        return 0


def wait_for_step(folder, rank, step, limit=60):
    end = time.monotonic() + limit
    while step_of(folder, rank) < step:
        assert time.monotonic() < end, f"rank {rank} came not to step {step}"
        time.sleep(0.005)


def ends_of(processes, victim):
    """Statuses and messages of the others, all of which end in time."""
    end = time.monotonic() + LIMIT_S
    found = []
    for rank, process in enumerate(processes):
        if rank != victim:
            _, errors = process.communicate(timeout=max(0.1, end - time.monotonic()))
            found.append((process.returncode, errors))
    return found


def check_survivors(processes, victim, pattern):
    for status, errors in ends_of(processes, victim):
        assert status == 4, errors
        assert re.search(pattern, errors), errors


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_rank_is_named_by_all_others(ranks, victim):
    folder, processes = ranks(3)
    wait_for_step(folder, victim, 200)
    processes[victim].kill()
    check_survivors(processes, victim, rf"rank {victim}\b.* was lost{SAYS_WHERE}")


@pytest.mark.parametrize("victim", [0, 2])
def test_stopped_rank_is_named_by_all_others(ranks, victim):
    folder, processes = ranks(3)
    wait_for_step(folder, victim, 200)
    processes[victim].send_signal(signal.SIGSTOP)
    check_survivors(processes, victim, rf"rank {victim}\b.* was lost{SAYS_WHERE}")


@pytest.mark.parametrize("victim", [0, 1])
def test_throwing_rank_is_named_by_all_others(ranks, victim):
    _, processes = ranks(3, "throw", victim, 7)
    check_survivors(processes, victim, rf"rank {victim} failed at step 7, in or")
    _, errors = processes[victim].communicate(timeout=LIMIT_S)
    assert (processes[victim].returncode, errors) == (1, "error: a planted exception\n")


def test_job_that_was_stopped_as_a_whole_goes_on(ranks):
    folder, processes = ranks(2, steps=200)
    wait_for_step(folder, 1, 5)
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(LIMIT_S)
    for process in processes:
        process.send_signal(signal.SIGCONT)
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def test_rank_that_is_late_but_alive_is_shown_with_the_others(ranks):
    folder, processes = ranks(2, "late", 1, 7)
    wait_for_step(folder, 1, 7)
    (status, errors), = ends_of(processes, 1)
    assert status == 4, errors
    assert "rank 0 at step 7" in errors and "no rank was lost" in errors
    assert re.search(r"\n  rank 0 at step 7, in or after collective (\d+)", errors)
    assert re.search(r"\n  rank 1 at step 7, in or after collective (\d+)", errors)


@pytest.mark.parametrize(
    ("kind", "theirs"), [("size", r"allreduce \(sum\)"), ("order", "broadcast")]
)
def test_mismatched_collectives_name_both_sides_when_checked(ranks, kind, theirs):
    _, processes = ranks(2, kind, 1, 7, AMPKIT_DIST_CHECK="1")
    for process in processes:
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 1, errors
        assert re.search(
            r"ranks disagree on a collective: rank 0 is at step 7, in or after "
            rf"collective \d+, .*; rank 1 is at step 7, .*, {theirs}.* of Float \[7\]",
            errors,
        ), errors


def test_checked_training_ends_in_the_same_weights(ranks):
    weights = []
    for check in ("0", "1"):
        folder, processes = ranks(2, steps=20, AMPKIT_DIST_CHECK=check)
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        weights.append((folder / "weights").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_torchrun_s_ranks_name_the_lost_one_too(build, tmp_path):
    """Its agent keeps the store, and kills nobody at once."""
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    program = build / "tests" / "dist" / "fault_rank"
    done = subprocess.run(
        [
            *(torchrun, "--standalone", "--nproc-per-node", "3", "--no-python"),
            *("--log-dir", tmp_path / "logs", "--redirects", "3"),
            *(program, tmp_path, str(STEPS), "throw", "1", "9"),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    logs = {p.parent.name: p.read_text() for p in tmp_path.rglob("stderr.log")}
    assert "a planted exception" in logs["1"]


class Trials:
    """Faults at random moments; `seed` repeats them."""

    def __init__(self, seed):
        print("seed", seed)
        self.chance = random.Random(seed)

    def one(self, ranks):
        count = self.chance.randint(2, 4)
        victim = self.chance.randrange(count)
        step = self.chance.randint(1, 150)
        kind = self.chance.choice(["kill", "stop", "throw"])
        print(count, "ranks", kind, victim, "at", step)
        if kind == "throw":
            _, processes = ranks(count, "throw", victim, step)
            processes[victim].wait(timeout=60)
            check_survivors(processes, victim, rf"rank {victim} failed at step {step},")
            return
        folder, processes = ranks(count)
        wait_for_step(folder, victim, step)
        time.sleep(self.chance.uniform(0, 0.01))
        signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
        processes[victim].send_signal(signals[kind])
        check_survivors(processes, victim, rf"rank {victim}\b.* was lost, last heard of")


def test_faults_at_random_moments(ranks, long_run):
    trials = Trials(random.randrange(1 << 32))
    for _ in range(100 if long_run else 4):
        trials.one(ranks)


@pytest.mark.parametrize("kind", ["kill", "stop", "throw"])
def test_restarted_run_ends_in_the_weights_of_an_undisturbed_one(
    build, tmp_path, kind, ranks
):
    undisturbed, processes = ranks(2, steps=120)
    for process in processes:
        assert process.wait(timeout=60) == 0
    folder = tmp_path / "disturbed"
    folder.mkdir()
    program = build / "tests" / "dist" / "fault_rank"
    launcher = build / "apps" / "ampkit" / "ampkit"
    fault = ["throw", "1", "60"] if kind == "throw" else []
    launched = subprocess.Popen(
        [
            *(launcher, "run", "--nproc-per-node", "2", "--max-restarts", "1"),
            *("--bind", "none", "--", program, folder, "120", *fault),
        ],
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if kind != "throw":
        wait_for_step(folder, 1, 60)
        victim = children_of(launched.pid, "RANK=1")
        os.kill(victim, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    output, errors = launched.communicate(timeout=60)
    assert launched.returncode == 0, output + errors
    assert "start 2" in errors or "again" in errors or "anew" in errors, errors
    ours = load_file(folder / "weights")
    for name, tensor in load_file(undisturbed / "weights").items():
        assert ours[name].equal(tensor), name


def children_of(launcher, variable):
    """The process below `launcher` that has this in its environment."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parent) == launcher and variable.encode() in variables:
            return int(path.name)
    raise AssertionError(f"no rank with {variable}")
