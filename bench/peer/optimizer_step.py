"""optimizer_step.py NAME: a step of that optimizer on 25 million parameters, in
the variant that is fastest here: fused, foreach or neither. Lion and LAMB, which
torch.optim lacks, are written with foreach ops."""

import sys
import time

import torch
from worker import seconds_per_call, serve

LR = 1e-3

torch.set_num_threads(2)
torch.manual_seed(0)
name = sys.argv[1]
count, shape = (8, (256, 256)) if name == "muon" else (10, (1000, 2500))
params = [torch.nn.Parameter(torch.randn(shape)) for _ in range(count)]
for param in params:
    param.grad = torch.randn(shape) * 1e-2


class Lion:
    def __init__(self, params):
        self.params = [p.detach() for p in params]
        self.grads = [p.grad for p in params]
        self.averages = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        direction = torch._foreach_mul(self.averages, 0.9)
        torch._foreach_add_(direction, self.grads, alpha=0.1)
        torch._foreach_sign_(direction)
        torch._foreach_add_(self.params, direction, alpha=-LR)
        torch._foreach_lerp_(self.averages, self.grads, 0.01)


class LAMB:
    def __init__(self, params):
        self.params = [p.detach() for p in params]
        self.grads = [p.grad for p in params]
        self.first = [torch.zeros_like(p) for p in self.params]
        self.second = [torch.zeros_like(p) for p in self.params]
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        torch._foreach_lerp_(self.first, self.grads, 0.1)
        torch._foreach_mul_(self.second, 0.999)
        torch._foreach_addcmul_(self.second, self.grads, self.grads, 0.001)
        roots = torch._foreach_sqrt(self.second)
        torch._foreach_div_(roots, (1 - 0.999**self.steps) ** 0.5)
        torch._foreach_add_(roots, 1e-6)
        direction = torch._foreach_div(self.first, roots)
        torch._foreach_div_(direction, 1 - 0.9**self.steps)
        torch._foreach_add_(direction, self.params, alpha=0.01)
        trust = torch._foreach_div(
            torch._foreach_norm(self.params), torch._foreach_norm(direction)
        )
        torch._foreach_mul_(direction, [-LR * ratio.item() for ratio in trust])
        torch._foreach_add_(self.params, direction)


VARIANTS = {
    "adafactor": [
        lambda p: torch.optim.Adafactor(p, LR, foreach=True),
        lambda p: torch.optim.Adafactor(p, LR, foreach=False),
    ],
    "adagrad": [
        lambda p: torch.optim.Adagrad(p, LR, fused=True),
        lambda p: torch.optim.Adagrad(p, LR, foreach=True),
    ],
    "adam": [lambda p: torch.optim.Adam(p, LR, fused=True)],
    "adamw": [lambda p: torch.optim.AdamW(p, LR, fused=True)],
    "lamb": [LAMB],
    "lion": [Lion],
    "muon": [lambda p: torch.optim.Muon(p, LR)],
    "rmsprop": [
        lambda p: torch.optim.RMSprop(p, LR, foreach=True),
        lambda p: torch.optim.RMSprop(p, LR, foreach=False),
    ],
    "sgd": [
        lambda p: torch.optim.SGD(p, LR, momentum=0.9, fused=True),
        lambda p: torch.optim.SGD(p, LR, momentum=0.9, foreach=True),
    ],
}


def trial_seconds(make):
    """The faster of two steps on copies of the parameters, after a first."""
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    for copy, param in zip(copies, params):
        copy.grad = param.grad
    optimizer = make(copies)
    optimizer.step()
    times = []
    for _ in range(2):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return min(times)


variants = VARIANTS[name]
fastest = variants[0] if len(variants) == 1 else min(variants, key=trial_seconds)
optimizer = fastest(params)


def check():
    before = params[0].detach().double().clone()
    for _ in range(3):
        optimizer.step()
    change = (params[0].detach().double() - before).abs()
    return {
        "mean change of a weight": change.mean().item(),
        "mean square of a change": change.square().mean().item(),
    }


serve(check, lambda: seconds_per_call(optimizer.step, 1 if name == "muon" else 5))
