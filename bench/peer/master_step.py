"""All that is between a backward pass and the next forward pass with fp16
weights: gradients to fp32, unscale, clip, fused AdamW on fp32 masters, and back
to fp16."""

import torch
from worker import seconds_per_call, serve

SCALE = 65536.0

torch.set_num_threads(2)
torch.manual_seed(0)
params = [torch.randn(1000, 2500).half() for _ in range(10)]
grads = [(torch.randn(1000, 2500) * 10).half() for _ in range(10)]
masters = [torch.nn.Parameter(p.float()) for p in params]
for master in masters:
    master.grad = torch.empty_like(master)
optimizer = torch.optim.AdamW(masters, lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=10**9)
scaler.scale(torch.ones(()))


def step():
    torch._foreach_copy_([master.grad for master in masters], grads)
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(masters, 1.0)
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        torch._foreach_copy_(params, masters)
    return norm


def check():
    before = params[0].double()
    for _ in range(3):
        step()
    change = (masters[0].detach().double() - before).abs()
    return {
        "mean change of a weight": change.mean().item(),
        "mean square of a change": change.square().mean().item(),
        "gradient norm": step().item(),
    }


serve(check, lambda: seconds_per_call(step, 5))
