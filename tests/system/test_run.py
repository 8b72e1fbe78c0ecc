"""ampkit run: ranks as processes, how they end, and that none is left."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from launched import (  # noqa: F401
    LIMIT_S,
    alive,
    program,
    script,
    started,
    wait_until,
    written,
)


@pytest.fixture(scope="module")
def probe(build):
    return build / "tests" / "dist" / "rank_probe"


@pytest.fixture(scope="module")
def ampkit_run(program, run):
    """Runs `ampkit run OPTIONS -- COMMAND`, output and errors together."""

    def start(options, command, status=0, **settings):
        return run([program, "run", *options, "--", *command], status=status, **settings)

    return start


def test_ranks_find_each_other(ampkit_run, probe):
    text = ampkit_run(["--nproc-per-node", 3], [probe]).stdout
    lines = re.findall(r"^\[rank (\d)\] (\{.*\})$", text, re.M)
    assert sorted(rank for rank, _ in lines) == ["0", "1", "2"]
    for rank, line in lines:
        found = json.loads(line)
        assert found["rank"] == found["local_rank"] == int(rank)
        assert (found["world_size"], found["sum"]) == (3, 6)
        assert found["launcher"] == "torchrun"


def test_variables_are_those_of_torchrun(ampkit_run, run, script):
    dump = script('env -0 > "env-$RANK"')
    folder = dump.parent

    def variables(rank):
        text = (folder / f"env-{rank}").read_text()
        return dict(entry.split("=", 1) for entry in text.split("\0") if entry)

    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    options = ["--nproc-per-node", 2]
    run([torchrun, "--standalone", "--no-python", *options, dump])
    expected = [variables(rank) for rank in range(2)]
    ampkit_run(options, [dump])
    # What differs: where the store is and who keeps it, names of this run, and
    # what only Python's own workers use.
    names = {name for name in expected[0] if name not in os.environ} - {
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE",
        "TORCHELASTIC_SIGNALS_TO_HANDLE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
    }
    assert {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"} <= names
    for rank in range(2):
        ours = variables(rank)
        assert {n: ours.get(n) for n in names} == {n: expected[rank][n] for n in names}
        assert ours["MASTER_ADDR"] == "127.0.0.1"
        assert ours["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_python_ranks_find_each_other(ampkit_run, tmp_path):
    training = tmp_path / "training.py"
    training.write_text(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
sum = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(sum)
print("sum", sum.item(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
    )
    text = ampkit_run(["--nproc-per-node", 2], [sys.executable, training]).stdout
    assert "[rank 0] sum 3.0" in text and "[rank 1] sum 3.0" in text


def test_streams_stay_apart_and_one_rank_has_no_prefix(program):
    command = ["sh", "-c", "echo out; echo err >&2; printf 'no end'"]
    done = subprocess.run(
        [program, "run", "--", *command], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("out\nno end\n", "err\n")


def test_log_files_have_everything_and_rank_0_is_shown(ampkit_run, script, tmp_path):
    show = script("echo out $RANK; echo err $RANK >&2")
    logs = tmp_path / "logs"
    text = ampkit_run(["--nproc-per-node", 2, "--log-dir", logs], [show]).stdout
    assert sorted(text.splitlines()) == ["[rank 0] err 0", "[rank 0] out 0"]
    for rank in range(2):
        for ending in ("out", "err"):
            path = logs / "start-0" / f"rank-{rank}.{ending}"
            assert path.read_text() == f"{ending} {rank}\n"


def test_failing_rank_ends_the_others_and_its_status_is_that_of_the_run(
    ampkit_run, script, tmp_path
):
    fail = script(
        """
        echo $$ > pid-$RANK
        [ $RANK != 1 ] || { echo one; echo two >&2; sleep 0.3; exit 3; }
        exec sleep 600
        """
    )
    begin = time.monotonic()
    text = ampkit_run(["--nproc-per-node", 3], [fail], status=3).stdout
    assert time.monotonic() - begin < 5
    assert re.search(r"ampkit: error: rank 1 \(process \d+\) ended with status 3", text)
    assert "\n  | one\n" in text and "\n  | two\n" in text
    assert not any(map(alive, written(tmp_path, "pid-*", 3)))


def test_rank_that_ignores_sigterm_is_killed(ampkit_run, script, tmp_path):
    stubborn = script(
        """
        trap '' TERM
        echo $$ > pid-$RANK
        until [ -e pid-0 ] && [ -e pid-1 ]; do sleep 0.02; done
        [ $RANK != 0 ] || exit 9
        while true; do sleep 0.1; done
        """
    )
    begin = time.monotonic()
    ampkit_run(["--nproc-per-node", 2], [stubborn], status=9)
    assert 4 < time.monotonic() - begin < 10
    assert not any(map(alive, written(tmp_path, "pid-*", 2)))


def test_rank_killed_by_a_signal_is_named_with_it(started, script, tmp_path):
    wait = script("echo $$ > pid-$RANK; exec sleep 600")
    launcher = started(["--nproc-per-node", 2], [wait])
    processes = written(tmp_path, "pid-*", 2)
    os.kill(processes[1], signal.SIGKILL)
    _, errors = launcher.communicate(timeout=10)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert f"rank 1 (process {processes[1]}) was killed by signal 9 (Killed)" in errors
    assert not any(map(alive, processes))


def test_stopped_ranks_end_too(started, script, tmp_path):
    wait = script("echo $$ > pid-$RANK; exec sleep 600")
    launcher = started(["--nproc-per-node", 2], [wait])
    processes = written(tmp_path, "pid-*", 2)
    os.kill(processes[0], signal.SIGSTOP)
    os.kill(processes[1], signal.SIGTERM)
    launcher.communicate(timeout=10)
    assert launcher.returncode == 128 + signal.SIGTERM
    assert not any(map(alive, processes))


def test_lost_peer_is_not_blamed(ampkit_run, script):
    # Rank 0 says by status 4 that it ended because of another; both ends are
    # there before the launcher looks, because it is stopped meanwhile.
    both = script(
        """
        until_there() { while [ ! -e $1 ]; do sleep 0.02; done; }
        if [ $RANK = 1 ]; then
          touch started
          until_there stopped
          touch ended
          exit 6
        fi
        until_there started
        kill -STOP $PPID
        touch stopped
        (until_there ended; sleep 0.5; kill -CONT $PPID) &
        disown
        exit 4
        """
    )
    text = ampkit_run(["--nproc-per-node", 2], [both], status=6).stdout
    assert "error: rank 1" in text


def test_no_rank_outlives_a_killed_launcher(started, script, tmp_path):
    # With a child each, one of which ignores what it is told.
    wait = script(
        """
        (trap '' TERM; echo $BASHPID > child-$RANK; while true; do sleep 0.1; done) &
        echo $$ > pid-$RANK
        wait
        """
    )
    launcher = started(["--nproc-per-node", 2], [wait])
    processes = written(tmp_path, "pid-*", 2) + written(tmp_path, "child-*", 2)
    assert all(map(alive, processes))
    launcher.kill()
    wait_until(lambda: not any(map(alive, processes[:2])), "ranks are gone")
    wait_until(lambda: not any(map(alive, processes)), "their children are gone")


def test_children_of_a_rank_end_with_it(ampkit_run, script, tmp_path):
    leave = script("sleep 600 & echo $! > child-$RANK; disown; exit 0")
    ampkit_run(["--nproc-per-node", 2], [leave])
    assert not any(map(alive, written(tmp_path, "child-*", 2)))


def test_restart_goes_on_where_the_ranks_left_off(ampkit_run, script, tmp_path):
    train = script(
        """
        step=$(cat step-$RANK 2>/dev/null || echo 0)
        while [ $step -lt 4 ]; do
          step=$((step + 1)); echo $step > step-$RANK
          [ $RANK.$step != 1.$((TORCHELASTIC_RESTART_COUNT + 1)) ] || exit 5
        done
        echo finished $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >> done-$RANK
        # The rank that is to fail comes second.
        [ $RANK = 1 ] || sleep 0.5
        """
    )
    options = ["--nproc-per-node", 2, "--log-dir", tmp_path / "logs"]
    text = ampkit_run([*options, "--max-restarts", 4], [train]).stdout
    assert text.count("starting all ranks anew") == 4
    assert (tmp_path / "done-1").read_text().startswith("finished 4 ")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        f"start-{start}" for start in range(5)
    ]


def test_restarts_are_limited(ampkit_run, script):
    options = ["--nproc-per-node", 2, "--max-restarts", 2]
    text = ampkit_run(options, [script("exit 5")], status=5).stdout
    assert text.count("starting all ranks anew") == 2
    assert "ended with status 5" in text.splitlines()[-1]


def test_cores_are_shared_out(ampkit_run, script):
    show = script("grep Cpus_allowed_list /proc/self/status; echo OMP=$OMP_NUM_THREADS")
    count = len(os.sched_getaffinity(0))
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}

    def cores(text):
        found = []
        for line in re.findall(r"Cpus_allowed_list:\s+(\S+)", text):
            for part in line.split(","):
                ends = [int(end) for end in part.split("-")]
                found += range(ends[0], ends[-1] + 1)
        return sorted(found)

    if count >= 2:
        text = ampkit_run(["--nproc-per-node", 2], [show], env=env).stdout
        assert cores(text) == sorted(os.sched_getaffinity(0))  # each of them once
    text = ampkit_run(["--nproc-per-node", 2, "--bind", "none"], [show], env=env).stdout
    assert len(cores(text)) == 2 * count
    assert int(re.search(r"OMP=(\d+)", text)[1]) == max(1, count // 2)
    env["OMP_NUM_THREADS"] = "7"
    assert ampkit_run([], [show], env=env).stdout.count("OMP=7") == 1


def test_options_of_the_program_are_its_own(ampkit_run):
    text = ampkit_run([], ["echo", "--nproc-per-node", "3", "train", "--", "-x"]).stdout
    assert text == "--nproc-per-node 3 train -- -x\n"


@pytest.mark.parametrize(
    ("options", "command", "message"),
    [
        (["--nproc-per-node", "two"], ["true"], "a number, auto or gpu, got 'two'"),
        (["--nproc-per-node", "0"], ["true"], "nproc_per_node must be in"),
        (["--nnodes", "2"], ["true"], "master_addr must be given with 2 nodes"),
        (["--bind", "some"], ["true"], "--bind"),
        ([], ["./no-such-program"], "cannot start './no-such-program'"),
        ([], [], "program"),
    ],
)
def test_wrong_usage(ampkit_run, options, command, message):
    text = ampkit_run(options, command, status=2).stdout
    assert text.startswith("ampkit: error: ") and message in text


def test_several_nodes(started, probe):
    # Both are this machine.
    base = ["--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "127.0.0.1"]
    base += ["--master-port", 20000 + os.getpid() % 10000]
    launchers = [started([*base, "--node-rank", node], [probe]) for node in range(2)]
    texts = [launcher.communicate(timeout=LIMIT_S)[0] for launcher in launchers]
    for node, text in enumerate(texts):
        lines = [json.loads(line) for line in re.findall(r"\{.*\}", text)]
        assert sorted(line["rank"] for line in lines) == [2 * node, 2 * node + 1]
        assert sorted(line["local_rank"] for line in lines) == [0, 1]
        assert all(line["sum"] == 10 for line in lines)
