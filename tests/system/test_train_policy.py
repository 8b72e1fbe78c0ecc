"""A run under a precision policy: it takes effect, is recorded, and resumed."""

import json
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

OVERRIDES = [
    *("data.limit=512", "data.eval_limit=200", "data.batch_size=64"),
    *("train.epochs=2", "output.report=false", "output.tensorboard=false"),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small steps lose by being split among threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def train(build, root):
    """The command that trains into `folder` with more keys set."""

    def command(folder, *arguments, keys=()):
        return [
            str(build / "apps" / "ampkit" / "ampkit"),
            "train",
            str(root / "configs" / "fashion-resnet.toml"),
            "--output",
            str(folder),
            *arguments,
            "--set",
            *OVERRIDES,
            *keys,
        ]

    return command


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def last_weights(folder):
    return load_file(sorted((folder / "checkpoints").glob("step-*"))[-1])


def test_network_put_in_float32_trains_as_in_fp32(run, train, tmp_path):
    policy = tmp_path / "all.toml"
    policy.write_text('[modules.rules]\n"" = "float32"\n')
    steps = "train.steps=3"
    run(train(tmp_path / "fp32", keys=[steps, "precision.preset=fp32"]))
    bf16 = [steps, "precision.preset=bf16-mixed"]
    run(train(tmp_path / "bf16", keys=bf16))
    done = run(train(tmp_path / "own", keys=[*bf16, f"precision.policy={policy}"]))
    assert losses(tmp_path / "own") == losses(tmp_path / "fp32")
    assert losses(tmp_path / "bf16") != losses(tmp_path / "fp32")
    assert f"in bf16-mixed, policy {policy}, 3 steps" in done.stdout


def stop_in_the_middle(command, folder):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    log = folder / "metrics.jsonl"
    end = time.monotonic() + 120
    while not log.exists() or log.read_text().count("\n") < 3:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130


def test_resumed_run_keeps_the_policy_that_it_began_with(run, train, tmp_path):
    policy = tmp_path / "mine.toml"
    policy.write_text('preset = "cv"\n[ops.rules]\nrelu = "float32"\n')
    keys = ["precision.preset=bf16-mixed", f"precision.policy={policy}"]
    run(train(tmp_path / "whole", keys=keys))
    recorded = (tmp_path / "whole" / "precision_policy.toml").read_text()
    assert "batch_norm" in recorded and 'relu = "float32"' in recorded

    folder = tmp_path / "stopped"
    stop_in_the_middle(train(folder, keys=keys), folder)
    policy.write_text('[ops]\nbase = "strict"\n')  # edited meanwhile
    done = run(train(folder, "--resume", keys=keys))
    assert "precision.policy is no longer what the run began with" in done.stdout
    assert (folder / "precision_policy.toml").read_text() == recorded
    assert losses(folder) == losses(tmp_path / "whole")
    expected = last_weights(tmp_path / "whole")
    for name, tensor in last_weights(folder).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[ops.rules]\nsofmax = "float32"\n', "mine.toml:2: ops.rules.sofmax"),
        ('[modules.rules]\nfcc = "float32"\n', "did you mean 'fc'?"),
    ],
)
def test_wrong_policy_is_usage_and_begins_nothing(text, message, run, train, tmp_path):
    policy = tmp_path / "mine.toml"
    policy.write_text(text)
    done = run(train(tmp_path / "run", keys=[f"precision.policy={policy}"]), status=2)
    assert message in done.stdout
    assert not (tmp_path / "run").exists()
