"""Autocast against torch.autocast: what every op gives back, in dtype and value.

Each op is traced to TorchScript here, so that the driver runs just the same ATen
call under ampkit's guard.
"""

import json
import warnings

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

# name, function of (a, b, c), shapes of a, b, c; floating-point inputs.
OPS = {
    "mm": (lambda a, b, c: torch.mm(a, b), [(4, 6), (6, 3)]),
    "matmul_nd": (lambda a, b, c: torch.matmul(a, b), [(2, 4, 6), (6, 3)]),
    "bmm": (lambda a, b, c: torch.bmm(a, b), [(2, 4, 6), (2, 6, 3)]),
    "baddbmm": (lambda a, b, c: torch.baddbmm(c, a, b), [(2, 4, 6), (2, 6, 3), (2, 4, 3)]),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b), [(4, 6), (6, 3), (3,)]),
    "addbmm": (lambda a, b, c: torch.addbmm(c, a, b), [(2, 4, 6), (2, 6, 3), (4, 3)]),
    "mv": (lambda a, b, c: torch.mv(a, b), [(4, 6), (6,)]),
    "linear": (lambda a, b, c: F.linear(a, b, c), [(4, 6), (3, 6), (3,)]),
    "linear_3d": (lambda a, b, c: F.linear(a, b, c), [(2, 4, 6), (3, 6), (3,)]),
    "einsum": (lambda a, b, c: torch.einsum("ij,jk->ik", a, b), [(4, 6), (6, 3)]),
    "conv1d": (lambda a, b, c: F.conv1d(a, b, c), [(2, 3, 9), (4, 3, 3), (4,)]),
    "conv2d": (lambda a, b, c: F.conv2d(a, b, c), [(2, 3, 9, 9), (4, 3, 3, 3), (4,)]),
    "conv2d_same": (
        lambda a, b, c: F.conv2d(a, b, padding="same"),
        [(2, 3, 9, 9), (4, 3, 3, 3)],
    ),
    "conv3d": (lambda a, b, c: F.conv3d(a, b), [(1, 2, 5, 5, 5), (3, 2, 3, 3, 3)]),
    "conv_transpose2d": (
        lambda a, b, c: F.conv_transpose2d(a, b),
        [(2, 3, 5, 5), (3, 4, 3, 3)],
    ),
    "attention": (
        lambda a, b, c: F.scaled_dot_product_attention(a, b, c),
        [(1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)],
    ),
    "prelu": (lambda a, b, c: F.prelu(a, b), [(4, 6), (1,)]),
    "softmax": (lambda a, b, c: F.softmax(a, -1), [(4, 6)]),
    "log_softmax": (lambda a, b, c: F.log_softmax(a, -1), [(4, 6)]),
    "batch_norm": (
        lambda a, b, c: F.batch_norm(a, None, None, b, c, True),
        [(4, 6), (6,), (6,)],
    ),
    "gelu": (lambda a, b, c: F.gelu(a), [(4, 6)]),
    "relu": (lambda a, b, c: F.relu(a), [(4, 6)]),
    "exp": (lambda a, b, c: a.exp(), [(4, 6)]),
    "sum": (lambda a, b, c: a.sum(), [(4, 6)]),
    "mean": (lambda a, b, c: a.mean(), [(4, 6)]),
    "mse_loss": (lambda a, b, c: F.mse_loss(a, b), [(4, 6), (4, 6)]),
    "l1_loss": (lambda a, b, c: F.l1_loss(a, b), [(4, 6), (4, 6)]),
    "huber_loss": (lambda a, b, c: F.huber_loss(a, b), [(4, 6), (4, 6)]),
    "bce_with_logits": (
        lambda a, b, c: F.binary_cross_entropy_with_logits(a, b),
        [(4, 6), (4, 6)],
    ),
    "binary_cross_entropy": (
        lambda a, b, c: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
        [(4, 6), (4, 6)],
    ),
    "cross_entropy": (
        lambda a, b, c: F.cross_entropy(a, torch.zeros(4, dtype=torch.long)),
        [(4, 6)],
    ),
    "cat": (lambda a, b, c: torch.cat([a, torch.mm(a, b)]), [(4, 4), (4, 4)]),
    "stack": (lambda a, b, c: torch.stack([a, torch.mm(a, b)]), [(4, 4), (4, 4)]),
    "add": (lambda a, b, c: a + torch.mm(a, b), [(4, 4), (4, 4)]),
    "avg_pool3d": (lambda a, b, c: F.avg_pool3d(a, 2), [(1, 2, 4, 4, 4)]),
    "grid_sample": (
        lambda a, b, c: F.grid_sample(a, b, align_corners=False),
        [(1, 1, 4, 4), (1, 4, 4, 2)],
    ),
    "cdist": (lambda a, b, c: torch.cdist(a, b), [(4, 6), (5, 6)]),
    "quantile": (lambda a, b, c: torch.quantile(a.float(), 0.5), [(4, 6)]),
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
UNUSED = torch.zeros(1)


def inputs_of(shapes, dtype):
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return tensors + [UNUSED] * (3 - len(tensors))


def trace(function, inputs, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing is deprecated, not gone
        torch.jit.trace(function, inputs, check_trace=False).save(path)


@pytest.mark.parametrize("region", DTYPES)
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_op_gives_the_dtype_and_value_of_torch(driver, tmp_path, region, input_dtype):
    tensors, expected = {}, {}
    for name, (function, shapes) in OPS.items():
        inputs = inputs_of(shapes, input_dtype)
        with torch.autocast("cpu", DTYPES[region]):
            try:
                expected[name] = function(*inputs)
            except RuntimeError:
                continue  # torch itself refuses the mix: nothing to compare
        trace(function, inputs_of(shapes, torch.float32), str(tmp_path / f"{name}.pt"))
        for i, tensor in enumerate(inputs):
            tensors[f"{name}.{i}"] = tensor.clone()
    assert len(expected) > 30
    save_file(tensors, tmp_path / "in.safetensors")
    (tmp_path / "names.json").write_text(json.dumps(list(expected)))
    driver("autocast", region, tmp_path, tmp_path / "out.safetensors")
    ours = load_file(tmp_path / "out.safetensors")
    # One rounding of the 16-bit result, relative to the largest element.
    epsilon = torch.finfo(DTYPES[region]).eps
    for name, value in expected.items():
        assert ours[name].dtype == value.dtype, name
        error = (ours[name].double() - value.double()).abs().max()
        assert error <= epsilon * value.double().abs().max(), name
