"""A training step whose time is calls, not arithmetic."""

import torch
from torch import nn
from worker import losses, seconds_per_call, serve

STEPS = 50

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential()
for _ in range(8):
    model.extend([nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()])
model.append(nn.Linear(64, 10))
x = torch.randn(32, 64)
y = torch.randint(0, 10, (32,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu")


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


serve(lambda: losses(step, 5), lambda: seconds_per_call(step, STEPS))
