"""One rank of a training by Python's DistributedDataParallel.

    python ddp_ranks.py task.json tensors.safetensors result.safetensors

Who this rank is stands in the environment, as torchrun sets it. driver/ddp.cpp is the
same by ampkit.
"""

import contextlib
import json
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn


class RankNet(nn.Module):
    def __init__(self, kind):
        super().__init__()
        if kind == "conv":
            self.body = nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(64, 4),
            )
        elif kind == "tied":
            self.first = nn.Parameter(torch.zeros(8, 8))
            self.second = self.first
        else:
            self.body = nn.Sequential(
                nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
            )
        if kind == "branch":
            self.extra = nn.Linear(8, 4)

    def forward(self, x, use_extra):
        if hasattr(self, "first"):
            return nn.functional.linear(
                torch.tanh(nn.functional.linear(x, self.first)), self.second
            )
        output = self.body(x)
        return output + self.extra(x) if use_extra and hasattr(self, "extra") else output


def train(task, tensors):
    rank, world, micro_batches = dist.get_rank(), dist.get_world_size(), task["micro_batches"]
    net = RankNet(task["net"])
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(tensors["state." + name])
    ddp = nn.parallel.DistributedDataParallel(
        net,
        bucket_cap_mb=task["bucket_bytes"] / 2**20,
        gradient_as_bucket_view=task["views"],
        find_unused_parameters=task["find_unused"],
        static_graph=task["static_graph"],
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    result = {}

    def rows(name, step, micro):
        count = len(tensors[name][step]) // world // micro_batches
        begin = (rank * micro_batches + micro) * count
        return tensors[name][step][begin : begin + count]

    for step in range(task["steps"]):
        for micro in range(micro_batches):
            last = micro == micro_batches - 1
            with contextlib.nullcontext() if last else ddp.no_sync():
                use_extra = (rank + step + micro) % 2 == 0
                output = ddp(rows("input", step, micro), use_extra)
                nn.functional.mse_loss(output, rows("target", step, micro)).backward()
        if step == 0:
            for name, parameter in net.named_parameters():
                if parameter.grad is not None:
                    result["grad." + name] = parameter.grad.clone()
        optimizer.step()
        optimizer.zero_grad()
    for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
        result["state." + name] = tensor.detach().clone()
    return result


def main(task, tensors, result):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with open(task, encoding="utf-8") as file:
        save_file(train(json.load(file), load_file(tensors)), result)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
