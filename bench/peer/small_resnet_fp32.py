"""A training step of a small residual network in FP32."""

import torch
from resnet import SmallResNet
from torch import nn
from worker import losses, seconds_per_call, serve

BATCH, STEPS = 64, 5

torch.set_num_threads(2)
torch.manual_seed(0)
model = SmallResNet()
x = torch.randn(BATCH, 1, 28, 28)
y = torch.randint(0, 10, (BATCH,))
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True
)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


serve(lambda: losses(step, 5), lambda: seconds_per_call(step, STEPS))
