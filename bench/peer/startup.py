"""The first training step of a process."""

import json

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
x = torch.randn(32, 64)
y = torch.randint(0, 10, (32,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu")
with torch.autocast("cpu", torch.bfloat16):
    loss = nn.functional.cross_entropy(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
with torch.no_grad():
    moved = sum(param.double().abs().sum().item() for param in model.parameters())
print(json.dumps({"loss": loss.item(), "sum of weights": moved}), flush=True)
