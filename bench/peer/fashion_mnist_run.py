"""The training run of a config.toml that ampkit wrote, in Python.

`fashion_mnist_run.py CONFIG choose` prints which dtype and number of loader
workers are fastest here; `fashion_mnist_run.py CONFIG DTYPE WORKERS` trains
with them and prints the accuracy.
"""

import json
import sys
import time
import tomllib

import torch
from fashion_mnist import FashionMnist
from resnet import SmallResNet
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader


def need(condition, what):
    if not condition:
        sys.exit(f"fashion_mnist_run.py: the peer does not know {what}")


def make_optimizer(config, model):
    c = config["optimizer"]
    parameters = list(model.parameters())
    groups = [{"params": parameters}]
    if not c["decay_all"]:
        groups = [
            {"params": [p for p in parameters if p.dim() > 1]},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
    common = {"lr": c["lr"], "weight_decay": c["weight_decay"], "fused": True}
    if c["name"] == "sgd":
        return torch.optim.SGD(
            groups, momentum=c["momentum"], nesterov=c["nesterov"], **common
        )
    return torch.optim.AdamW(
        groups, betas=(c["beta1"], c["beta2"]), eps=c["eps"], **common
    )


class Run:
    """Model, data and optimizer of a configuration."""

    def __init__(self, config, dtype, workers):
        need(config["model"]["name"] == "resnet_small", config["model"]["name"])
        need(config["schedule"]["name"] == "one-cycle", config["schedule"]["name"])
        need(config["train"]["accumulate"] == 1, "accumulation")
        self.config, self.dtype = config, dtype
        if config["train"]["threads"]:
            torch.set_num_threads(config["train"]["threads"])
        torch.manual_seed(config["train"]["seed"])
        data = config["data"]
        self.train = DataLoader(
            FashionMnist(
                data["path"],
                "train",
                data["crop_padding"],
                data["horizontal_flip"],
                data["cutout"],
            ),
            data["batch_size"],
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        self.eval = DataLoader(
            FashionMnist(data["path"], "t10k"), data["eval_batch_size"]
        )
        self.model = SmallResNet()
        self.optimizer = make_optimizer(config, self.model)
        self.scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
        self.schedule = self._make_schedule()
        self.average = self._make_average()

    def _make_schedule(self):
        c = self.config["schedule"]
        return torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            max_lr=self.config["optimizer"]["lr"],
            total_steps=self.config["train"]["epochs"] * len(self.train),
            pct_start=c["warmup"],
            cycle_momentum=c["cycle_momentum"],
            final_div_factor=1 / (25 * c["final_factor"]),
        )

    def _make_average(self):
        decay = self.config["train"]["ema_decay"]
        if not decay:
            return None
        return AveragedModel(
            self.model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True
        )

    def forward(self, model, x):
        with torch.autocast("cpu", torch.float16, self.dtype == torch.float16):
            return model(x).float()

    def step(self, x, y):
        loss = nn.functional.cross_entropy(
            self.forward(self.model, x),
            y,
            label_smoothing=self.config["train"]["label_smoothing"],
        )
        self.scaler.scale(loss).backward()
        if limit := self.config["optimizer"]["max_norm"]:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler.get_scale() >= scale:
            self.schedule.step()
            if self.average:
                self.average.update_parameters(self.model)

    @torch.no_grad()
    def accuracy(self, model):
        model.eval()
        right = 0
        for x, y in self.eval:
            right += (self.forward(model, x).argmax(1) == y).sum().item()
        model.train()
        return right / len(self.eval.dataset)

    def go(self):
        accuracy = 0.0
        train = self.config["train"]
        for epoch in range(1, train["epochs"] + 1):
            for x, y in self.train:
                self.step(x, y)
            if epoch % train["eval_every"] == 0 or epoch == train["epochs"]:
                accuracy = self.accuracy(self.model)
                if self.average:
                    accuracy = max(accuracy, self.accuracy(self.average))
        return accuracy


def seconds_of(run, steps):
    """Of so many steps, after two of warm-up."""
    batches = iter(run.train)
    for i in range(steps + 2):
        if i == 2:
            start = time.perf_counter()
        run.step(*next(batches))
    return time.perf_counter() - start


def choose(config):
    dtypes = {"fp32": torch.float32, "fp16": torch.float16}
    dtype = min(dtypes, key=lambda name: seconds_of(Run(config, dtypes[name], 0), 5))
    workers = min(
        (0, 2), key=lambda count: seconds_of(Run(config, dtypes[dtype], count), 40)
    )
    print(json.dumps({"dtype": dtype, "workers": workers}))


def main():
    path, *how = sys.argv[1:]
    with open(path, "rb") as file:
        config = tomllib.load(file)
    need(config["train"]["steps"] == 0, "train.steps")
    if how == ["choose"]:
        choose(config)
    else:
        dtype = {"fp32": torch.float32, "fp16": torch.float16}[how[0]]
        print(json.dumps({"accuracy": Run(config, dtype, int(how[1])).go()}))


if __name__ == "__main__":
    main()
