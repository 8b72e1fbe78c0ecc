"""`ampkit train` as a user meets it: output, files, statuses, Ctrl-C, SIGKILL."""

import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

STEPS = 16  # 512 images, 64 a step, 2 epochs
OVERRIDES = [
    *("data.limit=512", "data.eval_limit=200"),
    *("data.batch_size=64", "data.crop_padding=1"),
    "train.epochs=2",
    "train.ema_decay=0.9",
    "checkpoint.every_steps=3",
]
TIMES = ("samples_per_second", "memory_mb", "seconds")


@pytest.fixture(scope="session")
def ampkit(build, root):
    """The command line of `ampkit train` for a quick run into `folder`."""

    def command(folder, *arguments, overrides=()):
        return [
            str(build / "apps" / "ampkit" / "ampkit"),
            "train",
            str(root / "configs" / "fashion-resnet.toml"),
            "--output",
            str(folder),
            *arguments,
            "--set",
            *OVERRIDES,
            *overrides,
        ]

    return command


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small steps lose by being split among threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def reference(ampkit, run, tmp_path_factory):
    """The folder, output and wall time of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "reference"
    begin = time.monotonic()
    done = run(ampkit(folder))
    return folder, done.stdout, time.monotonic() - begin


def rows(folder, kind=None):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [row for row in found if kind in (None, row["kind"])]


def without_times(table):
    return [{k: v for k, v in row.items() if k not in TIMES} for row in table]


def checkpoints(folder):
    return sorted((folder / "checkpoints").glob("step-*.safetensors"))


def assert_same_end(folder, expected):
    """Weights, optimizer, everything else and the log, bit for bit."""
    ours = load_file(checkpoints(folder)[-1])
    theirs = load_file(checkpoints(expected)[-1])
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    assert without_times(rows(folder)) == without_times(rows(expected))


def wait_for(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} within {seconds} s"
        time.sleep(0.01)


def start(command, **options):
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def steps_written(folder):
    log = folder / "metrics.jsonl"
    return log.read_text().count('"kind":"train"') if log.exists() else 0


def test_quick_run_writes_everything(reference):
    folder, _, _ = reference
    names = {path.name.split(".")[0] for path in folder.iterdir()}
    assert names == {
        *("config", "precision_policy", "machine", "metrics", "events"),
        *("checkpoints", "report", "flight"),
    }
    train = rows(folder, "train")
    assert [row["step"] for row in train] == list(range(1, STEPS + 1))
    assert train[-1]["loss"] < train[0]["loss"]
    assert set(train[0]) == {
        *("kind", "step", "epoch", "loss", "learning_rate", "scale", "skipped"),
        *("skipped_total", "grad_norm", "nan_rate", "samples_per_second"),
        *("fault", "faults_total", "memory_mb"),
    }
    evaluations = rows(folder, "eval")
    assert [row["step"] for row in evaluations] == [8, 16]
    assert 0 <= evaluations[-1]["accuracy"] <= 1
    assert 0 <= evaluations[-1]["ema_accuracy"] <= 1
    assert 'preset = "fp16-mixed"' in (folder / "config.toml").read_text()
    assert "processor" in json.loads((folder / "machine.json").read_text())
    # Every 3 steps, each epoch, the end: the last three, and the best.
    assert 3 <= len(checkpoints(folder)) <= 4


def test_pipe_gets_plain_lines(reference):
    _, output, _ = reference
    assert "\r" not in output and "\x1b" not in output
    assert output.startswith("ampkit ")
    assert "training resnet_small (308074 parameters) in fp16-mixed" in output
    assert re.search(r"^step 16/16  epoch 2/2  loss \d", output, re.M)
    assert re.search(r"^epoch 2/2  step 16  test accuracy \d+\.\d\d %", output, re.M)
    assert re.search(r"^done: 16 steps, test accuracy", output, re.M)
    assert output.rstrip().endswith("report.html")


def test_terminal_gets_a_bar(ampkit, tmp_path):
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ampkit(tmp_path / "run", overrides=["output.report=false"]),
        stdout=slave,
        stderr=slave,
        close_fds=True,
    )
    os.close(slave)
    output = b""
    while process.poll() is None or select.select([master], [], [], 0.1)[0]:
        try:
            output += os.read(master, 4096)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert process.wait() == 0, output.decode()
    assert b"\r\x1b[K" in output
    assert b"100 % [====================] 16/16" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--nope"], "--nope"),
        (["train"], "no configuration file; see `ampkit train --help`"),
        (["nope"], "see `ampkit --help`"),
        ([], "A subcommand is required"),
        (["train", "/no/such.toml"], "/no/such.toml: cannot be read"),
        (
            ["train", "CONFIG", "--set", "train.epoch=2"],
            "--set train.epoch=2: train.epoch: unknown key, did you mean train.epochs?",
        ),
        (
            ["train", "CONFIG", "--set", "train.epochs=0"],
            "train.epochs: expected an integer >= 1, found 0",
        ),
        (
            ["train", "CONFIG", "--set", "data.path=/no/such/folder"],
            "dataset-fashion-mnist",
        ),
        (
            ["train", "CONFIG", "--set", "data.format=folder"],
            "no folder 'train' in data.path",
        ),
        (["train", "CONFIG", "--resume", "--overwrite"], "excludes"),
    ],
)
def test_wrong_usage_is_said_once_and_exits_2(
    arguments, message, run, build, root, tmp_path
):
    program = build / "apps" / "ampkit" / "ampkit"
    config = root / "configs" / "fashion-resnet.toml"
    words = [str(config) if word == "CONFIG" else word for word in arguments]
    done = run([program, *words], status=2, cwd=tmp_path)
    assert message in done.stdout
    assert done.stdout.count("ampkit: error: ") == 1
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_unknown_key_in_the_file_names_its_line(run, build, tmp_path):
    config = tmp_path / "wrong.toml"
    config.write_text("[train]\nepochs = 1\n\n[optimzer]\nlr = 1\n")
    program = build / "apps" / "ampkit" / "ampkit"
    done = run([program, "train", config], status=2)
    expected = "wrong.toml:4: [optimzer]: unknown section, did you mean optimizer?"
    assert expected in done.stdout


def test_help_version_and_keys(run, build):
    program = build / "apps" / "ampkit" / "ampkit"
    assert re.fullmatch(r"ampkit \d+\.\d+\.\d+\n", run([program, "--version"]).stdout)
    text = run([program, "train", "--help"]).stdout
    for word in ("--set", "--resume", "--overwrite", "--output", "Examples", "130"):
        assert word in text
    keys = run([program, "train", "--keys"]).stdout
    assert "[precision]\npreset = " in keys
    assert "one of fp32, fp16-mixed, bf16-mixed" in keys


def test_every_key_is_documented(run, build, root):
    program = build / "apps" / "ampkit" / "ampkit"
    text = (root / "docs" / "training.md").read_text()
    section = None
    for line in run([program, "train", "--keys"]).stdout.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif match := re.match(r"(\w+) = ", line):
            assert f"`{section}.{match[1]}`" in text


def test_existing_run_is_kept_unless_overwritten(ampkit, run, reference, tmp_path):
    folder, _, _ = reference
    before = (folder / "metrics.jsonl").read_text()
    done = run(ampkit(folder), status=2)
    assert "--resume goes on with it, --overwrite deletes it" in done.stdout
    assert (folder / "metrics.jsonl").read_text() == before

    once = tmp_path / "run"
    quick = ["train.steps=2", "output.report=false"]
    run(ampkit(once, overrides=quick))
    run(ampkit(once, "--overwrite", overrides=quick))
    assert [row["step"] for row in rows(once, "train")] == [1, 2]


def test_finished_run_has_nothing_to_resume(ampkit, run, reference):
    folder, _, _ = reference
    before = without_times(rows(folder))
    done = run(ampkit(folder, "--resume"))
    assert "had finished at step 16: nothing to do" in done.stdout
    assert without_times(rows(folder)) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_saves_and_resumes_to_the_same_end(
    number, ampkit, run, reference, tmp_path
):
    folder = tmp_path / "run"
    process = start(ampkit(folder))
    wait_for(lambda: steps_written(folder) >= 4, "fourth step")
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "finishing the step and saving" in errors
    stopped = int(re.search(r"stopped at step (\d+), saved", output)[1])
    assert checkpoints(folder)[-1].name == f"step-{stopped:012}.safetensors"

    done = run(ampkit(folder, "--resume"))
    assert f"resumed at step {stopped}" in done.stdout
    assert_same_end(folder, reference[0])


def test_second_interrupt_ends_at_once(ampkit, tmp_path):
    folder = tmp_path / "run"
    slow = ["data.limit=20000", "data.batch_size=20000", "train.epochs=5"]
    process = start(ampkit(folder, overrides=slow))
    wait_for(lambda: (folder / "metrics.jsonl").exists(), "start")
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    assert "once more to stop at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT


def test_one_process_at_a_time(ampkit, run, tmp_path):
    folder = tmp_path / "run"
    process = start(ampkit(folder, overrides=["train.epochs=200"]))
    try:
        wait_for(lambda: steps_written(folder) >= 1, "first step")
        done = run(ampkit(folder, "--resume"), status=2)
        assert "another process trains in this folder" in done.stdout
    finally:
        process.kill()
        process.communicate()


def kill_somewhere(command, longest, chance):
    """Whether the run was killed before its end."""
    process = start(command)
    try:
        process.communicate(timeout=chance.uniform(0, longest))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    assert process.returncode == 0
    return False


def test_killed_runs_end_in_the_same_weights(
    ampkit, run, long_run, tmp_path_factory, tmp_path
):
    """Half of the time goes into saving: a checkpoint after each step."""
    overrides = ["checkpoint.every_steps=1", "output.report=false"]
    expected = tmp_path / "expected"
    begin = time.monotonic()
    run(ampkit(expected, overrides=overrides))
    longest = time.monotonic() - begin
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    kills, wanted = 0, 50 if long_run else 5
    while kills < wanted:
        folder = tmp_path_factory.mktemp("killed") / "run"
        command = ampkit(folder, "--resume", overrides=overrides)
        while kills < wanted and kill_somewhere(command, longest, chance):
            kills += 1
        run(command)
        assert_same_end(folder, expected)


def flip_last_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_damaged_checkpoint_is_passed_over(ampkit, run, reference, tmp_path):
    folder = tmp_path / "run"
    run(ampkit(folder))
    flip_last_byte(checkpoints(folder)[-1])
    done = run(ampkit(folder, "--resume"))
    assert "passed over a damaged checkpoint" in done.stdout
    assert_same_end(folder, reference[0])


def test_only_damaged_checkpoints_exit_3(ampkit, run, tmp_path):
    folder = tmp_path / "run"
    run(ampkit(folder, overrides=["train.steps=2"]))
    for path in checkpoints(folder):
        flip_last_byte(path)
    done = run(ampkit(folder, "--resume", overrides=["train.steps=2"]), status=3)
    assert checkpoints(folder)[0].name in done.stdout
    assert "checksum" in done.stdout


def test_checkpoint_of_another_configuration_exits_3(ampkit, run, reference):
    folder, _, _ = reference
    done = run(
        ampkit(folder, "--resume", overrides=["model.name=resnet18"]), status=3
    )
    assert "does not fit this run" in done.stdout
    assert 'model.name: "resnet_small" -> "resnet18"' in done.stdout


def test_training_that_fails_exits_1(ampkit, run, tmp_path):
    wild = ["precision.preset=fp32", "optimizer.lr=1e30", "train.patience=3"]
    done = run(ampkit(tmp_path / "run", overrides=wild), status=1)
    assert "ampkit: error: Trainer::run: the loss or a gradient was not" in done.stdout
    assert "Exception raised from" not in done.stdout  # no backtrace


def test_weights_can_be_started_from(ampkit, run, reference, tmp_path):
    """A checkpoint's own tensors, under the names of the model."""
    from safetensors.torch import save_file

    state = load_file(checkpoints(reference[0])[-1])
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in state.items()
        if name.startswith("model.")
    }
    path = tmp_path / "weights.safetensors"
    save_file(weights, path)
    begin = [f"model.weights={path}", "train.steps=1", "output.report=false"]
    run(ampkit(tmp_path / "run", overrides=begin))
    first = rows(reference[0], "train")[0]["loss"]
    assert rows(tmp_path / "run", "train")[0]["loss"] < first

    weights["fc.weight"] = weights["fc.weight"][:5].contiguous()
    save_file(weights, path)
    done = run(ampkit(tmp_path / "other", overrides=begin), status=3)
    assert "fc.weight" in done.stdout and "does not fit" in done.stdout
