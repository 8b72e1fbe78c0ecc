"""`ampkit train` as several ranks: the same run, whoever starts it."""

import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from test_train import (  # the fixtures too
    ampkit,
    checkpoints,
    one_thread,
    rows,
    start,
    steps_written,
    wait_for,
    without_times,
)

__all__ = ["ampkit", "one_thread"]



@pytest.fixture
def launched(build, ampkit):
    def command(ranks, folder, *arguments, overrides=(), launcher=()):
        program = build / "apps" / "ampkit" / "ampkit"
        prefix = [program, "run", "--nproc-per-node", ranks, "--bind", "none"]
        words = [
            *(prefix if ranks > 1 else []),
            *(["--max-restarts", "1"] if "restart" in launcher else []),
            *(["--"] if ranks > 1 else []),
            *ampkit(folder, *arguments, overrides=overrides),
        ]
        return [str(word) for word in words]

    return command


def test_two_ranks_write_one_run(launched, run, tmp_path):
    done = run(launched(2, tmp_path / "run"))
    folder = tmp_path / "run"
    assert done.stdout.count("training resnet_small") == 1
    assert ", 2 epochs, 2 ranks, into " in done.stdout
    assert re.search(r"^\[rank 0\] done: 16 steps, test accuracy", done.stdout, re.M)
    assert "[rank 1]" not in done.stdout
    assert [row["step"] for row in rows(folder, "train")] == list(range(1, 17))
    assert [row["samples"] for row in rows(folder, "eval")] == [200, 200]
    assert (folder / "report.html").exists()


def weights_of(folder):
    state = load_file(checkpoints(folder)[-1])
    return {k: v for k, v in state.items() if k.startswith("model.")}


def largest_difference(ours, theirs):
    assert ours.keys() == theirs.keys()
    return max((ours[n].double() - theirs[n].double()).abs().max() for n in ours)


def test_run_goes_on_at_another_number_of_ranks(launched, run, tmp_path):
    one_rank, folder = tmp_path / "one", tmp_path / "run"
    run(launched(1, one_rank))
    process = start(launched(2, folder))
    wait_for(lambda: steps_written(folder) >= 4, "fourth step")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    stopped = int(re.search(r"stopped at step (\d+), saved", output)[1])
    assert output.count("stopped at step") == 1
    assert checkpoints(folder)[-1].name == f"step-{stopped:012}.safetensors"
    for ranks in (3, 1):
        done = run(launched(ranks, folder, "--resume"))
        if ranks == 3:
            assert f"resumed at step {stopped}" in done.stdout
    ours, theirs = rows(folder, "train"), rows(one_rank, "train")
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    assert [row["learning_rate"] for row in ours] == [
        row["learning_rate"] for row in theirs
    ]


def test_resumed_ranks_end_in_the_bits_of_undisturbed_ones(launched, run, tmp_path):
    expected, folder = tmp_path / "expected", tmp_path / "run"
    run(launched(2, expected))
    process = start(launched(2, folder))
    wait_for(lambda: steps_written(folder) >= 5, "fifth step")
    process.kill()  # the launcher: its ranks end without saving
    process.communicate()
    time.sleep(6)  # until no rank of it holds the folder
    run(launched(2, folder, "--resume"))
    assert largest_difference(weights_of(folder), weights_of(expected)) == 0
    assert without_times(rows(folder)) == without_times(rows(expected))


def test_rank_that_dies_is_named_and_ends_the_run(launched, tmp_path):
    folder = tmp_path / "run"
    slow = ["train.epochs=500"]
    process = start(launched(2, folder, overrides=slow))
    wait_for(lambda: steps_written(folder) >= 4, "fourth step")
    victim = rank_of(process.pid, 1)
    subprocess.run(["kill", "-STOP", victim.name], check=True)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < 20  # 10 to notice, 5 until SIGKILL
    assert process.returncode != 0
    assert re.search(r"rank 1 was lost, last heard of at step \d+, in or after", errors)


def rank_of(launcher, rank):
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parent) == launcher and f"RANK={rank}".encode() in variables:
            return path
    raise AssertionError(f"no rank {rank}")


@pytest.mark.slow
def test_torchrun_starts_it_too(ampkit, run, tmp_path):
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    options = ["--standalone", "--nproc-per-node", "2", "--no-python"]
    done = run([torchrun, *options, *ampkit(tmp_path / "run")])
    assert "done: 16 steps" in done.stdout
    ours = weights_of(tmp_path / "run")
    assert all(torch.isfinite(tensor).all() for tensor in ours.values())


def test_batch_that_ranks_cannot_share_is_an_error(launched, run, tmp_path):
    few = ["data.batch_size=1"]
    done = run(launched(2, tmp_path / "run", overrides=few), status=2)
    assert "data.batch_size: 2 ranks share a batch" in done.stdout
