"""Two losses with a scaler each, over separate and shared weights, on
torch.amp.GradScaler and on ampkit's.

The losses differ by a factor, in FP16, so that their scales settle apart: one
for both would be too low for the smaller loss. "separate": a weight and an
optimizer for each. "shared": two optimizers that have a weight in common, one
after the other, as in a GAN. "summed": one optimizer; each loss is unscaled by
its own scaler, and the sum of their gradients is stepped if it is finite.
"""

import json

import pytest
import torch

LR = 2.0**-16
ITERATIONS = 60


class TwoLosses:
    """As tests/oracle/driver/loss_scales.cpp has it."""

    def __init__(self, task):
        self.factors = task["factors"]
        self.shared = torch.nn.Parameter(torch.tensor([1.0, 0.5, 2.0]))
        self.heads = [
            torch.nn.Parameter(torch.tensor([0.5, 1.0, 0.25])),
            torch.nn.Parameter(torch.tensor([1.0, 0.75, 0.5])),
        ]
        self.all = [self.shared, *self.heads]
        interval = task["growth_interval"]
        self.scalers = [
            torch.amp.GradScaler("cpu", growth_interval=interval) for _ in range(2)
        ]
        groups = {
            "separate": [[head] for head in self.heads],
            "shared": [[self.shared, head] for head in self.heads],
            "summed": [self.all],
        }[task["how"]]
        self.optimizers = [torch.optim.SGD(g, lr=LR, momentum=0.5) for g in groups]
        self.step = self.step_of_both if task["how"] == "summed" else self.two_steps

    def loss(self, i):
        head = self.heads[i].half()
        return (self.shared.half() * head * head).float().sum() * self.factors[i]

    def clear(self):
        for parameter in self.all:
            parameter.grad = None

    def two_steps(self):
        for i, (scaler, sgd) in enumerate(zip(self.scalers, self.optimizers)):
            self.clear()
            scaler.scale(self.loss(i)).backward()
            scaler.step(sgd)
            scaler.update()

    def step_of_both(self):
        (sgd,) = self.optimizers
        sums = [None] * len(self.all)
        for i, scaler in enumerate(self.scalers):
            self.clear()
            scaler.scale(self.loss(i)).backward()
            scaler.unscale_(sgd)
            scaler.update()
            for p, parameter in enumerate(self.all):
                if parameter.grad is not None:
                    grad = parameter.grad
                    sums[p] = grad if sums[p] is None else sums[p] + grad
        for parameter, total in zip(self.all, sums):
            parameter.grad = total
        if all(total.isfinite().all() for total in sums):
            sgd.step()

    def run(self):
        trace = []
        for _ in range(ITERATIONS):
            self.step()
            trace.append(
                {
                    "scales": [scaler.get_scale() for scaler in self.scalers],
                    "weights": torch.cat(self.all).tolist(),
                }
            )
        return trace


@pytest.mark.parametrize("torch_exact", [True, False])
@pytest.mark.parametrize("optimizer,tolerance", [("torch", 0), ("ampkit", 1e-6)])
@pytest.mark.parametrize("how", ["separate", "shared", "summed"])
def test_each_loss_has_the_scale_that_suits_it(
    driver, tmp_path, how, optimizer, tolerance, torch_exact
):
    tasks = [
        {
            "how": how,
            "optimizer": optimizer,
            "torch_exact": torch_exact,
            "factors": factors,
            "growth_interval": interval,
            "iterations": ITERATIONS,
        }
        for factors in ([1.0, 64.0], [256.0, 1.0], [0.25, 4.0])
        for interval in (3, 5)
    ]
    source, target = tmp_path / "tasks.json", tmp_path / "traces.json"
    source.write_text(json.dumps(tasks))
    driver("loss_scales", source, target)
    for task, ours in zip(tasks, json.loads(target.read_text()), strict=True):
        theirs = TwoLosses(task).run()
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            where = f"{task} iteration {number}"
            assert a["scales"] == b["scales"], where
            assert a["weights"] == pytest.approx(b["weights"], rel=tolerance, abs=0), where
        first, second = (
            {step["scales"][i] for step in theirs[-10:]} for i in range(2)
        )
        assert first.isdisjoint(second)  # they did settle apart
        skips = sum(
            later["scales"][i] < earlier["scales"][i]
            for earlier, later in zip(theirs, theirs[1:])
            for i in range(2)
        )
        assert skips > 4
