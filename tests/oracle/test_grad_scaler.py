"""GradScaler against torch.amp.GradScaler: random sequences of its calls.

Each sequence runs once here on the real scaler and once in the driver on
ampkit's; after every call the scale, the growth counter, the weights and
whether the call was refused must agree. The floor of ampkit's scale, which
torch lacks, is moved out of the way; tests/amp covers it.

Some losses are inf or NaN. torch takes what follows for an overflow, as ampkit
does with torch_exact. By default ampkit skips the step whatever the gradients
are, and the iteration leaves the scale and its counter as they were.
"""

import json
import random

import pytest
import torch

INF = float("inf")
NAN = float("nan")


def random_options(rng):
    return {
        "init_scale": 2.0 ** rng.randint(-3, 20),
        "growth_factor": rng.choice([1.5, 2.0, 4.0]),
        "backoff_factor": rng.choice([0.25, 0.5, 0.9]),
        "growth_interval": rng.randint(1, 4),
    }


def random_gradient(rng):
    """Three numbers; as texts, since JSON has no inf and NaN."""
    values = [rng.uniform(-8, 8) for _ in range(3)]
    if rng.random() < 0.25:
        values[rng.randrange(3)] = rng.choice([INF, -INF, NAN])
    return [str(value) for value in values]


def random_loss(rng):
    return str(rng.choice([INF, -INF, NAN]) if rng.random() < 0.15 else 1.0)


def random_events(rng):
    """Mostly well-ordered iterations, now and then a call out of order."""
    events = []
    for _ in range(rng.randint(3, 8)):
        iteration = [["scale", random_loss(rng)], ["grad", random_gradient(rng)]]
        if rng.random() < 0.4:
            iteration.append(["unscale"])
        iteration += [["step"], ["update"]]
        if rng.random() < 0.15:
            # With a fresh gradient: torch has unscaled the old one in place,
            # which ampkit's optimizers don't do, so using it twice differs.
            call = rng.choice([["unscale"], ["step"], ["update"], ["scale", random_loss(rng)]])
            place = rng.randint(0, len(iteration))
            iteration[place:place] = [["grad", random_gradient(rng)], call]
        if rng.random() < 0.1:
            iteration.append(["set", 2.0 ** rng.randint(0, 16)])
        if rng.random() < 0.2:
            iteration.append(["save_load"])
        events += iteration
    # Before the first scale() nothing else is legal but loading.
    return [["save_load"]] * (rng.random() < 0.1) + events


class TorchRun:
    """One sequence on torch.amp.GradScaler, exactly as it is."""

    def __init__(self, options):
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.weight.grad = torch.zeros(3)
        self.sgd = torch.optim.SGD([self.weight], lr=0.125)
        self.scaler = torch.amp.GradScaler("cpu", **options)

    def call(self, event):
        name = event[0]
        if name == "scale":
            self.scaler.scale(torch.tensor(float(event[1])))
        elif name == "grad":
            self.weight.grad = torch.tensor([float(text) for text in event[1]])
        elif name == "unscale":
            self.scaler.unscale_(self.sgd)
        elif name == "step":
            self.scaler.step(self.sgd)
        elif name == "update":
            self.scaler.update()
        elif name == "set":
            self.scaler.update(event[1])
        elif name == "save_load":
            state = self.scaler.state_dict()
            self.scaler = torch.amp.GradScaler("cpu")
            self.scaler.load_state_dict(state)

    def run(self, events):
        trace = []
        for event in events:
            refused = False
            try:
                self.call(event)
            except (RuntimeError, AssertionError):
                refused = True
            tracker = self.scaler.state_dict()["_growth_tracker"]
            trace.append(
                {
                    "refused": refused,
                    "scale": self.scaler.get_scale(),
                    "tracker": tracker,
                    "weight": self.weight.tolist(),
                }
            )
        return trace


class TorchRunWithFaults(TorchRun):
    """The same, with what ampkit makes of losses that are not finite."""

    def __init__(self, options):
        super().__init__(options)
        self.bad_loss = False  # since the last update
        self.fault = False  # seen by an unscale or a step since then

    def call(self, event):
        name = event[0]
        before = self.scaler.state_dict()
        weight = self.weight.detach().clone()
        super().call(event)  # a call that is refused ends here
        if name == "scale":
            self.bad_loss |= not torch.tensor(float(event[1])).isfinite().item()
        elif name in ("unscale", "step"):
            self.fault |= self.bad_loss
            if name == "step" and self.bad_loss:
                self.weight.data.copy_(weight)
        else:
            if name == "update" and self.fault:
                self.scaler.load_state_dict(before)
            if name in ("update", "set", "save_load"):
                self.bad_loss = self.fault = False


def check(sequence, ours, theirs, tolerance):
    for step, (event, a, b) in enumerate(zip(sequence["events"], ours, theirs)):
        where = f"{sequence['options']} event {step} {event}: {a} != {b}"
        assert a["refused"] == b["refused"], where
        assert a["scale"] == b["scale"], where
        assert a["tracker"] == b["tracker"], where
        weight = [float(text) for text in a["weight"]]
        expected = pytest.approx(b["weight"], rel=tolerance, abs=0, nan_ok=True)
        assert weight == expected, where


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer,tolerance", [("torch", 0), ("ampkit", 1e-6)])
@pytest.mark.parametrize("torch_exact", [True, False])
def test_random_sequences_agree_at_every_step(
    driver, tmp_path, optimizer, tolerance, torch_exact, count
):
    rng = random.Random(20)
    sequences = [
        {
            "options": random_options(rng) | {"torch_exact": torch_exact},
            "events": random_events(rng),
        }
        for _ in range(count)
    ]
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps(sequences))
    driver("grad_scaler", optimizer, source, target)
    traces = json.loads(target.read_text())
    assert len(traces) == len(sequences)
    reference = TorchRun if torch_exact else TorchRunWithFaults
    skips = 0
    for sequence, ours in zip(sequences, traces):
        options = {k: v for k, v in sequence["options"].items() if k != "torch_exact"}
        theirs = reference(options).run(sequence["events"])
        assert len(ours) == len(theirs) == len(sequence["events"])
        check(sequence, ours, theirs, tolerance)
        skips += sum(b["scale"] < a["scale"] for a, b in zip(theirs, theirs[1:]))
    assert skips > count / 10  # overflows did happen


def test_state_dict_has_the_keys_and_values_of_torch(driver, tmp_path):
    target = tmp_path / "state.json"
    scaler = torch.amp.GradScaler("cpu")
    driver("grad_scaler_state", target, "torch_exact")
    assert json.loads(target.read_text()) == scaler.state_dict()
    driver("grad_scaler_state", target, "default")
    ours = json.loads(target.read_text())
    assert scaler.state_dict().items() <= ours.items()
    scaler.load_state_dict(ours)  # and torch takes it, counts and all
    assert scaler.get_scale() == 65536.0


def megatron(options, overflows):
    """Megatron-LM's DynamicGradScaler in our words: an overflow uses up one of
    `hysteresis`, and with none left halves, as does each later one; only a
    growth gives them back."""
    scale, clean, left = options["init_scale"], 0, options["hysteresis"]
    for overflow in overflows:
        if overflow:
            clean = 0
            left -= 1
            if left <= 0:
                scale = max(scale * options["backoff_factor"], options["min_scale"])
        else:
            clean += 1
            if clean == options["growth_interval"]:
                clean, left = 0, options["hysteresis"]
                scale *= options["growth_factor"]
        yield scale


def deepspeed(options, overflows):
    """DeepSpeed's DynamicLossScaler in our words: it has the number of the last
    overflow instead of a count, grows wherever the distance to it is a multiple
    of the window, and stops using up its hysteresis at 1, where each overflow
    divides. Consecutive: any clean step gives all of it back."""
    window, full = options["growth_interval"], options["hysteresis"]
    scale, last_overflow, left = options["init_scale"], -1, full
    for number, overflow in enumerate(overflows):
        if overflow:
            if left == 1:
                scale = max(scale * options["backoff_factor"], options["min_scale"])
            else:
                left -= 1
            last_overflow = number
        else:
            if options["consecutive_hysteresis"]:
                left = full
            if (number - last_overflow) % window == 0:
                left = full
                scale *= options["growth_factor"]
        yield scale


@pytest.mark.parametrize(
    "rule,consecutive", [(megatron, False), (deepspeed, False), (deepspeed, True)]
)
def test_hysteresis_follows_megatron_and_deepspeed(driver, tmp_path, rule, consecutive):
    rng = random.Random(3)
    runs = []
    for _ in range(200):
        rate = rng.choice([0.1, 0.3, 0.6])
        runs.append(
            {
                "options": {
                    "init_scale": 2.0 ** rng.randint(2, 16),
                    "growth_factor": 2.0,
                    "backoff_factor": 0.5,
                    "growth_interval": rng.randint(1, 6),
                    "hysteresis": rng.randint(2, 4),
                    "consecutive_hysteresis": consecutive,
                    "min_scale": 1.0,
                },
                "overflows": [rng.random() < rate for _ in range(40)],
            }
        )
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps(runs))
    driver("grad_scaler_rules", source, target)
    for run, ours in zip(runs, json.loads(target.read_text())):
        assert ours == list(rule(run["options"], run["overflows"])), run


def test_resuming_in_a_new_process_keeps_the_scale_trace(driver, tmp_path):
    def steps(first, last, start, end):
        trace = tmp_path / "trace.json"
        driver("grad_scaler_steps", first, last, start, end, trace)
        return json.loads(trace.read_text())

    whole, half, rest = (tmp_path / f"{name}.safetensors" for name in ("a", "b", "c"))
    expected = steps(1, 20, "", whole)
    assert len(set(expected["scales"])) > 3  # it did move
    assert expected["faults"] == 1
    for stop in (1, 6, 7, 10):
        first = steps(1, stop, "", half)
        second = steps(stop + 1, 20, half, rest)
        assert first["scales"] + second["scales"] == expected["scales"]
        assert second["taken"] == expected["taken"]
        assert second["faults"] == expected["faults"]
        assert rest.read_bytes() == whole.read_bytes()  # weights, moments, counts
