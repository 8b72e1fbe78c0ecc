"""Every optimizer, schedule, preset and clipping that `ampkit train` has."""

import itertools
import json
import re

import pytest

QUICK = [
    *("data.limit=128", "data.eval_limit=64", "data.batch_size=32"),
    *("train.epochs=1", "output.report=false", "output.tensorboard=false"),
    *("optimizer.lr=1e-3", "optimizer.max_norm=0"),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small steps lose by being split among threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture
def train(run, program, root, tmp_path):
    """Trains with more keys set; gives the lines of the log, or the output if
    another status is expected."""
    count = itertools.count()

    def start(*keys, status=0):
        folder = tmp_path / f"run-{next(count)}"
        config = root / "configs" / "fashion-resnet.toml"
        command = [program, "train", config, "--output", folder, "--set", *QUICK, *keys]
        done = run(command, status=status)
        if status:
            return done.stdout
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == "train"]

    return start


@pytest.fixture(scope="module")
def choices(program, run):
    """The values of a key, as the program lists them."""
    text = run([program, "train", "--keys"]).stdout

    def of(section, key):
        part = text[text.index(f"[{section}]") :]
        line = re.search(rf"^{key} = .*\n.*; one of (.*)$", part, re.M)
        return line[1].split(", ")

    return of


def test_every_optimizer_schedule_and_preset_trains(train, choices):
    optimizers = choices("optimizer", "name")
    schedules = choices("schedule", "name")
    presets = choices("precision", "preset")
    assert len(optimizers) == 9 and len(schedules) == 10
    presets.remove("fp8-mixed")  # below
    length = max(map(len, (optimizers, schedules, presets)))
    for i in range(length):
        optimizer, schedule, preset = (
            values[i % len(values)] for values in (optimizers, schedules, presets)
        )
        steps = train(
            f"optimizer.name={optimizer}",
            f"schedule.name={schedule}",
            f"precision.preset={preset}",
            "schedule.warmup=0.3",
            *["schedule.cycle_momentum=false"] * (schedule == "one-cycle"),
        )
        assert len(steps) == 4, (optimizer, schedule, preset)
        assert all(isinstance(step["loss"], float) for step in steps)


def test_fp8_without_a_layer_that_can_says_why(train):
    text = train("precision.preset=fp8-mixed", status=2)
    assert "precision.preset: fp8-mixed runs linear layers in FP8" in text
    assert "fc.weight: " in text
    assert "16" in text


def test_norm_that_is_clipped_is_the_one_in_the_log(train):
    keys = ["precision.preset=fp32", "train.steps=1"]
    norms = [
        train(*keys, f"optimizer.norm_type={kind}")[0]["grad_norm"]
        for kind in ("1", "2", "inf")
    ]
    assert norms[0] > 5 * norms[1] > 5 * norms[2] > 0


@pytest.mark.parametrize(
    "key", ["max_norm=1e-6", "clip_value=1e-9", "clip_factor=1e-6"]
)
def test_clipping_to_almost_nothing_holds_the_weights(train, key):
    plain = ["precision.preset=fp32", "optimizer.name=sgd", "optimizer.lr=0.1"]
    keys = [*plain, "optimizer.weight_decay=0", "schedule.name=constant"]
    keys += ["schedule.warmup=0", "data.horizontal_flip=false"]
    free = [step["loss"] for step in train(*keys)]
    held = [step["loss"] for step in train(*keys, f"optimizer.{key}")]
    again = [step["loss"] for step in train(*keys, "optimizer.lr=0")]
    assert held == pytest.approx(again, abs=2e-3)
    assert abs(free[-1] - again[-1]) > 2e-2


@pytest.mark.parametrize(
    "key,text",
    [
        ("optimizer.norm_typ=1", "did you mean optimizer.norm_type?"),
        ("optimizer.norm_type=3", "expected one of 1, 2, inf, found 3"),
        ("schedule.milestons=[0.5]", "did you mean schedule.milestones?"),
        ("schedule.milestones=[1.5]", "expected a list of numbers in (0, 1)"),
        ("precision.preset=bf16-split", "expected one of fp32, fp16-mixed"),
        ("optimizer.clip_factor=0.01", "does not go together with"),
        ("optimizer.dampening=0.1", "adamw does not have it; sgd does"),
        ("schedule.power=2", "one-cycle does not have it; polynomial does"),
    ],
)
def test_wrong_option_is_named(train, key, text):
    more = ["optimizer.max_norm=1"] if "clip_factor" in key else []
    output = train(key, *more, status=2)
    assert key.partition("=")[0] in output
    assert text in output
