"""What torch.utils.checkpoint around each block adds to a step of a small GPT."""

import time

import torch
from gpt import GPT, loss_of, random_batch
from worker import serve

STEPS = 5

torch.set_num_threads(2)
torch.manual_seed(0)
model = GPT()
batch = random_batch(8)


def step(recompute):
    model.recompute = recompute
    model.zero_grad(set_to_none=True)
    loss = loss_of(model, *batch)
    loss.backward()
    return loss.item()


def extra_seconds():
    """Alternating, so that a slow moment meets both alike."""
    seconds = {False: 0.0, True: 0.0}
    for _ in range(STEPS):
        for recompute in seconds:
            start = time.perf_counter()
            step(recompute)
            seconds[recompute] += time.perf_counter() - start
    return (seconds[True] - seconds[False]) / STEPS


serve(lambda: {"loss": step(True)}, extra_seconds)
