"""Learning-rate schedules against torch.optim.lr_scheduler, to the last bit."""

import json
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

LRS = [0.1, 0.003, 1.7]  # three groups
STEPS = 130

PARTS = {
    "constant": dict(kind="ConstantLR", factor=0.3, total_iters=17),
    "constant-0": dict(kind="ConstantLR", factor=0.5, total_iters=0),
    "linear": dict(kind="LinearLR", start_factor=0.01, end_factor=1.0, total_iters=40),
    "linear-down": dict(kind="LinearLR", start_factor=1.0, end_factor=0.0, total_iters=33),
    "cosine": dict(kind="CosineAnnealingLR", T_max=50, eta_min=0.0),
    "cosine-floor": dict(kind="CosineAnnealingLR", T_max=31, eta_min=1e-3),
    "cosine-1": dict(kind="CosineAnnealingLR", T_max=1, eta_min=1e-3),
}
SEQUENCES = {
    "three": (["linear", "constant", "cosine-floor"], [20, 55]),
    "cosine-linear": (["cosine", "linear-down"], [70]),
    "second-at-once": (["linear", "cosine"], [0]),
    "one": (["cosine"], []),
}
ONE_CYCLE = dict(
    kind="OneCycleLR",
    max_lr=[0.5],
    total_steps=STEPS,
    pct_start=0.3,
    anneal_strategy="cos",
    cycle_momentum=True,
    base_momentum=0.85,
    max_momentum=0.95,
    div_factor=25.0,
    final_div_factor=1e4,
    three_phase=False,
)
ONE_CYCLES = {
    "defaults": {},
    "linear": dict(anneal_strategy="linear", pct_start=0.41),
    "three-phase": dict(three_phase=True, div_factor=10.0),
    "three-phase-linear": dict(three_phase=True, anneal_strategy="linear"),
    "groups": dict(max_lr=[0.1, 0.5, 2.5], cycle_momentum=False),
    "momentum": dict(base_momentum=0.5, max_momentum=0.99),
}


def make_torch(optimizer, schedule):
    options = {k: v for k, v in schedule.items() if k != "kind"}
    kind = schedule["kind"]
    if kind == "SequentialLR":
        parts = [make_torch(optimizer, part) for part in options["schedules"]]
        return lr_scheduler.SequentialLR(optimizer, parts, options["milestones"])
    if kind == "OneCycleLR" and len(options["max_lr"]) == 1:
        options["max_lr"] = options["max_lr"][0]
    return getattr(lr_scheduler, kind)(optimizer, **options)


def run_torch(name, schedule, steps):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in LRS]
    make = torch.optim.SGD if name == "SGD" else torch.optim.AdamW
    optimizer = make(groups, lr=1.0)
    rates, momentums = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the order of step() calls
        torch_schedule = make_torch(optimizer, schedule)
        for step in range(steps + 1):
            if step:
                torch_schedule.step()
            rates.append([group["lr"] for group in optimizer.param_groups])
            momentums.append(
                [g["momentum"] if name == "SGD" else g["betas"][0] for g in optimizer.param_groups]
            )
    return rates, momentums


@pytest.fixture
def compare(driver, tmp_path):
    def run(schedule, name="AdamW", steps=STEPS, torch_schedule=None):
        source, result = tmp_path / "task.json", tmp_path / "result.json"
        task = {"optimizer": name, "lrs": LRS, "schedule": schedule, "steps": steps}
        source.write_text(json.dumps(task))
        driver("schedule", source, result)
        ours = json.loads(result.read_text())
        rates, momentums = run_torch(name, torch_schedule or schedule, steps)
        assert len(rates) == steps + 1
        assert ours["rates"] == rates
        assert ours["momentums"] == momentums

    return run


@pytest.mark.parametrize("part", PARTS)
def test_single_schedule(compare, part):
    compare(PARTS[part])


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequence(compare, sequence):
    parts, milestones = SEQUENCES[sequence]
    compare(
        {
            "kind": "SequentialLR",
            "schedules": [PARTS[part] for part in parts],
            "milestones": milestones,
        }
    )


@pytest.mark.parametrize("warmup", [0, 1, 30])
def test_warmup_cosine_is_linear_then_cosine(compare, warmup):
    options = dict(warmup_steps=warmup, total_steps=STEPS, start_factor=0.01, eta_min=1e-5)
    linear = dict(kind="LinearLR", start_factor=0.01, end_factor=1.0, total_iters=warmup)
    cosine = dict(kind="CosineAnnealingLR", T_max=STEPS - warmup, eta_min=1e-5)
    sequence = dict(kind="SequentialLR", schedules=[linear, cosine], milestones=[warmup])
    compare(dict(options, kind="WarmupCosineLR"), torch_schedule=sequence)


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
@pytest.mark.parametrize("case", ONE_CYCLES)
def test_one_cycle(compare, name, case):
    compare(dict(ONE_CYCLE, **ONE_CYCLES[case]), name, steps=STEPS - 1)


def test_steps_beyond_one_cycle_are_refused_as_in_python(driver, tmp_path):
    source, result = tmp_path / "task.json", tmp_path / "result.json"
    task = {"optimizer": "SGD", "lrs": LRS, "schedule": ONE_CYCLE, "steps": STEPS + 1}
    source.write_text(json.dumps(task))
    with pytest.raises(AssertionError, match=f"there are {STEPS} steps"):
        driver("schedule", source, result)
    with pytest.raises(ValueError, match=f"number of total steps is {STEPS}"):
        run_torch("SGD", ONE_CYCLE, STEPS + 1)
