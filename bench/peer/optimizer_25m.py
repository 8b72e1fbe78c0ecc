"""Unscale, clip and AdamW on 25 million parameters."""

import torch
from worker import seconds_per_call, serve

TENSORS, SIZE, SCALE, STEPS = 10, 2_500_000, 65536.0, 5

torch.set_num_threads(2)
torch.manual_seed(0)
params = [torch.nn.Parameter(torch.randn(SIZE)) for _ in range(TENSORS)]
scaled = [torch.randn(SIZE) * (1e-3 * SCALE) for _ in range(TENSORS)]
for param in params:
    param.grad = torch.empty_like(param)
optimizer = torch.optim.AdamW(params, lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=10**9)
scaler.scale(torch.ones(()))


def backward():
    """What a backward pass would leave; not timed."""
    for param, grad in zip(params, scaled):
        param.grad.copy_(grad)


def step():
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(optimizer)
    scaler.update()
    return norm


def check():
    before = params[0].detach().clone()
    values = {}
    for i in range(3):
        backward()
        values[f"gradient norm of step {i + 1}"] = step().item()
    moved = (params[0].detach() - before).abs().double()
    values["mean change of a weight"] = moved.mean().item()
    values["mean square of a change"] = moved.square().mean().item()
    return values


def run():
    seconds = 0.0
    for _ in range(STEPS):
        backward()
        seconds += seconds_per_call(step, 1)
    return seconds / STEPS


serve(check, run)
