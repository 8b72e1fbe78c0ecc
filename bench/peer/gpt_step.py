"""A training step of a small GPT in bf16 autocast."""

import torch
from gpt import GPT, loss_of, random_batch
from torch import nn
from worker import losses, seconds_per_call, serve

torch.set_num_threads(2)
torch.manual_seed(0)
model = GPT()
batch = random_batch(8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, *batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


serve(lambda: losses(step, 2), lambda: seconds_per_call(step, 1))
