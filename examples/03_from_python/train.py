"""train.py FILE STEPS: trains until STEPS in all, from FILE if it exists."""

import pathlib
import sys

import torch
from torch import nn

path, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
step = 0
if path.exists():
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    optimizer.param_groups[0]["fused"] = True
    step = state["step"]

while step < steps:
    torch.manual_seed(step)
    x = torch.randn(32, 16)
    y = x.square().mean(1, keepdim=True)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    step += 1

state = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "scaler": scaler.state_dict(),
    "step": step,
}
torch.save(state, path)
total = sum(p.sum(dtype=torch.double).item() for p in model.parameters())
print(f"step {step}  loss {loss:.4f}  sum of weights {total:.12f}")
