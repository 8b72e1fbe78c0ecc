"""The same network, weights and batches in Python and C++: 100 steps.

FP32 with the stock update kernel must give the same loss to the last bit;
ampkit's own kernels round differently and must stay within 1e-6. In 16 bits
the two sides may run different kernels (ampkit's go through FP32 where the
processor has no 16-bit units), so the losses agree within what the dtype's
rounding makes of 100 steps.
"""

import gzip
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = "/usr/share/datasets/fashion-mnist"
STEPS, BATCH = 100, 32


def fashion_batches():
    with gzip.open(f"{FOLDER}/train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + STEPS * BATCH * 784), np.uint8, offset=16)
    with gzip.open(f"{FOLDER}/train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + STEPS * BATCH), np.uint8, offset=8)
    x = torch.from_numpy(images.copy()).view(STEPS, BATCH, 1, 28, 28).float() / 255
    y = torch.from_numpy(labels.copy()).view(STEPS, BATCH).long()
    return x, y


def make_network():
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 49, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        nn.Linear(64, 10),
    )


def train_in_python(network, x, y, dtype):
    """Losses, scales and skipped steps of PyTorch's own loop."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, enabled=dtype == torch.float16)
    losses, scales = [], []
    for batch, target in zip(x, y):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(network(batch), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales


@pytest.fixture
def train_both(driver, tmp_path):
    def run(precision, kernel, dtype):
        network = make_network()
        x, y = fashion_batches()
        save_file(network.state_dict(), tmp_path / "weights.safetensors")
        save_file({"x": x, "y": y}, tmp_path / "batches.safetensors")
        target = tmp_path / "out.json"
        driver("training", precision, kernel, tmp_path, target)
        ours = json.loads(target.read_text())
        losses, scales = train_in_python(network, x, y, dtype)
        assert len(ours["losses"]) == len(losses) == STEPS
        assert losses[-1] < 0.6 * losses[0]  # it does learn
        return ours, losses, scales

    return run


def largest_relative(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def test_fp32_with_the_stock_kernel_is_equal_to_the_last_bit(train_both):
    ours, losses, _ = train_both("fp32", "stock", None)
    assert ours["losses"] == losses


def test_fp32_with_own_kernels_is_within_1e_6(train_both):
    ours, losses, _ = train_both("fp32", "highway", None)
    assert largest_relative(ours["losses"], losses) < 1e-6


@pytest.mark.parametrize(
    "precision,dtype,epsilon",
    [("bf16-mixed", torch.bfloat16, 2.0**-8), ("fp16-mixed", torch.float16, 2.0**-11)],
)
def test_16_bit_losses_stay_within_the_rounding_of_the_dtype(
    train_both, precision, dtype, epsilon
):
    """Each loss within 16 roundings of the dtype: about ten layers deep, each
    rounding once in forward and once in backward. The scale starts too high, so
    that the first steps are skipped, and is not given time to grow back to the
    edge, where a rounding would decide."""
    ours, losses, scales = train_both(precision, "automatic", dtype)
    difference = max(abs(a - b) for a, b in zip(ours["losses"], losses))
    assert difference < 16 * epsilon
    assert ours["scales"] == scales
    if dtype == torch.float16:
        skipped = sum(b < a for a, b in zip([2.0**24] + scales, scales))
        assert ours["skipped"] == skipped > 0
    else:
        assert ours["skipped"] == 0
