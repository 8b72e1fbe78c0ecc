"""What an autocast region around one small product costs beyond the product."""

import torch
from worker import seconds_per_call, serve

CALLS = 20000

torch.set_num_threads(1)
torch.set_grad_enabled(False)
torch.manual_seed(0)
a = torch.randn(8, 8).to(torch.bfloat16)
b = torch.randn(8, 8).to(torch.bfloat16)


def product():
    return torch.mm(a, b)


def region():
    with torch.autocast("cpu", torch.bfloat16):
        return torch.mm(a, b)


serve(
    lambda: {"sum of the product": region().sum().item()},
    lambda: seconds_per_call(region, CALLS) - seconds_per_call(product, CALLS),
)
