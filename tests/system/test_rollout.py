"""`ampkit rollout`: a precision is tried before the whole run."""

import json
import re
import signal
import subprocess
import time

import pytest

QUICK = [
    *("data.limit=2000", "data.eval_limit=100", "data.batch_size=64"),
    *("data.workers=0", "output.report=false", "train.threads=1"),
]
FOUND = 5


@pytest.fixture(scope="module")
def command(build, root):
    program = build / "apps" / "ampkit" / "ampkit"
    return [program, "rollout", root / "configs" / "fashion-resnet.toml"]


def test_a_healthy_precision_passes_and_writes_nothing(run, command, tmp_path):
    done = run([*command, "--steps", 15, "--set", *QUICK], cwd=tmp_path)
    assert re.search(r"^fp32: step 15 of 15, loss [\d.]+, scale 1$", done.stdout, re.M)
    low = r"^fp16-mixed: step 15 of 15, .*, scale \d{3,}$"
    assert re.search(low, done.stdout, re.M)
    for name in ("loss", "gradient norm", "scale", "NaN rate"):
        assert re.search(rf"^pass  {name}: ", done.stdout, re.M)
    assert done.stdout.endswith("the roll-out passed\n")
    assert list(tmp_path.iterdir()) == []


def test_a_precision_that_goes_wrong_fails_and_is_not_trained(run, command, tmp_path):
    keys = ["precision.init_scale=1e38", "precision.dynamic_scale=false"]
    keys += ["train.patience=4", f"output.dir={tmp_path}"]
    done = run(
        [*command, "--steps", 8, "--train", "--set", *QUICK, *keys], status=FOUND
    )
    assert re.search(r"^FAIL  run: .*", done.stdout, re.M)
    assert re.search(r"^FAIL  NaN rate: 100 % of steps", done.stdout, re.M)
    assert list(tmp_path.iterdir()) == []


def test_alarms_ring_in_the_run_that_follows(run, command, tmp_path):
    # The scale grows until gradients overflow, after the roll-out has ended.
    keys = ["train.steps=40", f"output.dir={tmp_path}", "output.name=run"]
    keys += ["precision.growth_interval=4", "precision.growth_factor=1024"]
    arguments = ["--steps", 4, "--train", "--nan-rate", 0.2]
    done = run([*command, *arguments, "--set", *QUICK, *keys])
    alarm = r"^ALARM  step \d+: \d.* % of the last 100 steps not finite"
    assert re.search(alarm, done.stdout, re.M)
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert sum("loss" in json.loads(row) for row in rows) >= 40


def test_ctrl_c_ends_it(command):
    words = [str(word) for word in [*command, "--steps", 500, "--set", *QUICK]]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The tests may run under a shell that ignores SIGINT; SIGTERM is the same.
    time.sleep(4)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", 0], "--steps"),
        (["--loss", -1], "--loss"),
        (["--set", "precision.preset=fp32"], "precision.preset is fp32"),
        (["--set", "precision.presets=fp32"], "precision.preset"),
    ],
)
def test_wrong_usage_is_named(run, command, arguments, message):
    assert message in run([*command, *arguments], status=2).stdout
