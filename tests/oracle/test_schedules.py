"""Learning-rate schedules against torch.optim.lr_scheduler, torch.optim.swa_utils
and transformers, to the last bit."""

import json
import math
import random
import warnings

import pytest
import torch
import transformers
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR

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
    "step": dict(kind="StepLR", step_size=7, gamma=0.3),
    "step-1": dict(kind="StepLR", step_size=1, gamma=0.97),
    "multi-step": dict(kind="MultiStepLR", milestones=[20, 31, 31, 90], gamma=0.3),
    "multi-step-0": dict(kind="MultiStepLR", milestones=[30, 0, 0, 5], gamma=0.7),
    "restarts": dict(kind="CosineAnnealingWarmRestarts", T_0=17, T_mult=1, eta_min=0.0),
    "restarts-2": dict(kind="CosineAnnealingWarmRestarts", T_0=9, T_mult=2, eta_min=1e-3),
    "restarts-1": dict(kind="CosineAnnealingWarmRestarts", T_0=1, T_mult=3, eta_min=1e-3),
    "polynomial": dict(kind="PolynomialLR", total_iters=60, power=1.0),
    "polynomial-2": dict(kind="PolynomialLR", total_iters=100, power=2.3),
    "polynomial-0": dict(kind="PolynomialLR", total_iters=0, power=2.0),
    "swa": dict(kind="SWALR", swa_lr=[0.05], anneal_epochs=10, anneal_strategy="cos"),
    "swa-linear": dict(
        kind="SWALR", swa_lr=[0.05, 0.1, 0.2], anneal_epochs=33, anneal_strategy="linear"
    ),
    "swa-0": dict(kind="SWALR", swa_lr=[0.05], anneal_epochs=0, anneal_strategy="cos"),
}
WSD = dict(
    kind="WarmupStableDecayLR",
    num_warmup_steps=20,
    num_stable_steps=50,
    num_decay_steps=40,
    warmup_type="linear",
    decay_type="cosine",
    min_lr_ratio=0.0,
    num_cycles=0.5,
)
POLYNOMIAL_DECAY = dict(
    kind="WarmupPolynomialLR",
    num_warmup_steps=20,
    num_training_steps=100,
    lr_end=1e-4,
    power=1.0,
    lr_init=1.0,  # the default that run_torch gives the optimizer
)
PARTS |= {
    "wsd": WSD,
    "wsd-cosine-linear": dict(WSD, warmup_type="cosine", decay_type="linear", min_lr_ratio=0.1),
    "wsd-1-sqrt": dict(WSD, warmup_type="1-sqrt", decay_type="1-sqrt", min_lr_ratio=0.03),
    "wsd-waves": dict(WSD, num_cycles=1.7, min_lr_ratio=0.01),
    "wsd-at-once": dict(WSD, num_warmup_steps=0, num_stable_steps=0, num_decay_steps=130),
    "wsd-no-decay": dict(WSD, num_decay_steps=0),
    "polynomial-decay": POLYNOMIAL_DECAY,
    "polynomial-decay-3": dict(POLYNOMIAL_DECAY, power=3.3, num_warmup_steps=0, lr_end=1e-7),
}
SEQUENCES = {
    "three": (["linear", "constant", "cosine-floor"], [20, 55]),
    "cosine-linear": (["cosine", "linear-down"], [70]),
    "second-at-once": (["linear", "cosine"], [0]),
    "one": (["cosine"], []),
    "steps": (["step", "multi-step-0", "multi-step"], [30, 60]),
    "restarts": (["linear", "restarts-2"], [40]),
    "polynomial": (["constant", "polynomial"], [17]),
    "wsd-swa": (["wsd", "swa", "step"], [65, 90]),
    "cosine-swa-linear": (["cosine", "swa-linear"], [25]),
    "swa-0": (["step", "swa-0"], [25]),
    "polynomial-decay-first": (["polynomial-decay", "restarts"], [60]),
    "restarts-first": (["restarts-2", "polynomial-decay"], [25]),
    "swa-0-first": (["swa-0", "constant"], [25]),
}
CHAINS = {
    "one": ["cosine"],
    "warm-up-and-steps": ["linear", "multi-step"],
    "three": ["constant", "step-1", "cosine-floor"],
    "formula-last": ["linear", "restarts"],
    "formula-first": ["wsd", "step"],
    "swa": ["multi-step-0", "swa-linear"],
    "polynomial": ["constant", "polynomial-2"],
}
PLATEAU = dict(
    mode="min",
    factor=0.1,
    patience=3,
    threshold=1e-4,
    threshold_mode="rel",
    cooldown=0,
    min_lr=[0.0],
    eps=1e-8,
)
PLATEAUS = {
    "defaults": {},
    "max": dict(mode="max", factor=0.7),
    "absolute": dict(threshold=0.02, threshold_mode="abs", factor=0.5),
    "max-absolute": dict(mode="max", threshold=0.02, threshold_mode="abs", factor=0.5),
    "cooldown": dict(cooldown=4, patience=1, factor=0.9),
    "no-patience": dict(patience=0, factor=0.95),
    "floor": dict(min_lr=[0.02, 0.0, 1.0], patience=1, factor=0.6),
    "eps": dict(eps=1e-2, patience=1, factor=0.6),
    "high-threshold": dict(threshold=0.1, patience=2, factor=0.8),
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
    if kind == "ChainedScheduler":
        parts = [make_torch(optimizer, part) for part in options["schedules"]]
        return lr_scheduler.ChainedScheduler(parts)
    if kind == "WarmupStableDecayLR":
        return transformers.get_wsd_schedule(optimizer, **options)
    if kind == "WarmupPolynomialLR":
        assert options.pop("lr_init") == optimizer.defaults["lr"]
        return transformers.get_polynomial_decay_schedule_with_warmup(optimizer, **options)
    if kind == "SWALR":
        if len(options["swa_lr"]) == 1:
            options["swa_lr"] = options["swa_lr"][0]
        return SWALR(optimizer, **options)
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


@pytest.mark.parametrize("chain", CHAINS)
def test_chain(compare, chain):
    compare({"kind": "ChainedScheduler", "schedules": [PARTS[part] for part in CHAINS[chain]]})


def test_polynomial_decay_of_one_group_needs_no_initial_rate(driver, tmp_path):
    source, result = tmp_path / "task.json", tmp_path / "result.json"
    schedule = dict(POLYNOMIAL_DECAY, lr_init=0.0)
    task = {"optimizer": "SGD", "lrs": [0.3], "schedule": schedule, "steps": STEPS}
    source.write_text(json.dumps(task))
    driver("schedule", source, result)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    torch_schedule = make_torch(optimizer, dict(schedule, lr_init=0.3))
    rates = []
    for _ in range(STEPS + 1):
        rates.append(torch_schedule.get_last_lr())
        optimizer.step()
        torch_schedule.step()
    assert json.loads(result.read_text())["rates"] == rates


def test_step_schedule_does_not_decay_one_step_late_as_in_libtorch(driver, tmp_path):
    source, result = tmp_path / "task.json", tmp_path / "result.json"
    schedule = dict(kind="StepLR", step_size=2, gamma=0.1)
    task = {"optimizer": "SGD", "lrs": [1.0], "schedule": schedule, "steps": 5}
    source.write_text(json.dumps(task))
    driver("schedule", source, result)
    rates = [rate for (rate,) in json.loads(result.read_text())["rates"]]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("case", PLATEAUS)
def test_reduce_on_plateau(driver, tmp_path, case):
    schedule = dict(PLATEAU, **PLATEAUS[case])
    choice = random.Random(3)
    metrics = [2 * math.exp(-step / 20) + choice.uniform(0, 0.1) for step in range(STEPS)]
    metrics[30] = math.nan
    if schedule["mode"] == "max":
        metrics = [-metric for metric in metrics]
    source, result = tmp_path / "task.json", tmp_path / "result.json"
    task = {
        "optimizer": "SGD",
        "lrs": LRS,
        "schedule": schedule,
        "metrics": ["nan" if math.isnan(metric) else metric for metric in metrics],
    }
    source.write_text(json.dumps(task))
    driver("plateau", source, result)
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in LRS]
    optimizer = torch.optim.SGD(groups)
    if len(schedule["min_lr"]) == 1:
        schedule["min_lr"] = schedule["min_lr"][0]
    torch_schedule = lr_scheduler.ReduceLROnPlateau(optimizer, **schedule)
    rates = []
    for metric in metrics:
        torch_schedule.step(metric)
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert rates[-1] != LRS
    assert json.loads(result.read_text())["rates"] == rates


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
