"""Autocast against torch.autocast: what every op gives back, in dtype and value.

Each op is compiled to TorchScript here, so that the driver runs just the same
ATen call under ampkit's guard.
"""

import itertools
import json
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

# name: expression over a, b, c; their shapes. Floating-point inputs.
OPS = {
    "mm": ("torch.mm(a, b)", [(4, 6), (6, 3)]),
    "matmul_nd": ("torch.matmul(a, b)", [(2, 4, 6), (6, 3)]),
    "bmm": ("torch.bmm(a, b)", [(2, 4, 6), (2, 6, 3)]),
    "baddbmm": ("torch.baddbmm(c, a, b)", [(2, 4, 6), (2, 6, 3), (2, 4, 3)]),
    "addmm": ("torch.addmm(c, a, b)", [(4, 6), (6, 3), (3,)]),
    "addbmm": ("torch.addbmm(c, a, b)", [(2, 4, 6), (2, 6, 3), (4, 3)]),
    "mv": ("torch.mv(a, b)", [(4, 6), (6,)]),
    "linear": ("torch.ops.aten.linear(a, b, c)", [(4, 6), (3, 6), (3,)]),
    "linear_3d": ("torch.ops.aten.linear(a, b, c)", [(2, 4, 6), (3, 6), (3,)]),
    "einsum": ("torch.einsum('ij,jk->ik', a, b)", [(4, 6), (6, 3)]),
    "conv1d": ("torch.ops.aten.conv1d(a, b, c)", [(2, 3, 9), (4, 3, 3), (4,)]),
    "conv2d": ("torch.ops.aten.conv2d(a, b, c)", [(2, 3, 9, 9), (4, 3, 3, 3), (4,)]),
    "conv2d_same": (
        "torch.ops.aten.conv2d(a, b, None, [1, 1], 'same')",
        [(2, 3, 9, 9), (4, 3, 3, 3)],
    ),
    "conv3d": ("torch.ops.aten.conv3d(a, b)", [(1, 2, 5, 5, 5), (3, 2, 3, 3, 3)]),
    "conv_transpose2d": (
        "torch.ops.aten.conv_transpose2d(a, b)",
        [(2, 3, 5, 5), (3, 4, 3, 3)],
    ),
    "attention": (
        "torch.ops.aten.scaled_dot_product_attention(a, b, c)",
        [(1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)],
    ),
    "prelu": ("torch.ops.aten.prelu(a, b)", [(4, 6), (1,)]),
    "softmax": ("torch.softmax(a, -1)", [(4, 6)]),
    "log_softmax": ("torch.log_softmax(a, -1)", [(4, 6)]),
    "batch_norm": (
        "torch.batch_norm(a, b, c, None, None, True, 0.1, 1e-5, False)",
        [(4, 6), (6,), (6,)],
    ),
    "gelu": ("torch.ops.aten.gelu(a)", [(4, 6)]),
    "relu": ("torch.ops.aten.relu(a)", [(4, 6)]),
    "exp": ("a.exp()", [(4, 6)]),
    "sum": ("a.sum()", [(4, 6)]),
    "mean": ("a.mean()", [(4, 6)]),
    "mse_loss": ("torch.ops.aten.mse_loss(a, b)", [(4, 6), (4, 6)]),
    "l1_loss": ("torch.ops.aten.l1_loss(a, b)", [(4, 6), (4, 6)]),
    "huber_loss": ("torch.ops.aten.huber_loss(a, b)", [(4, 6), (4, 6)]),
    "bce_with_logits": (
        "torch.ops.aten.binary_cross_entropy_with_logits(a, b)",
        [(4, 6), (4, 6)],
    ),
    "binary_cross_entropy": (
        "torch.ops.aten.binary_cross_entropy(a.sigmoid(), b.sigmoid())",
        [(4, 6), (4, 6)],
    ),
    "cross_entropy": (
        "torch.ops.aten.cross_entropy_loss(a, torch.zeros([4], dtype=torch.long))",
        [(4, 6)],
    ),
    "cat": ("torch.cat([a, torch.mm(a, b)])", [(4, 4), (4, 4)]),
    "stack": ("torch.stack([a, torch.mm(a, b)])", [(4, 4), (4, 4)]),
    "add": ("a + torch.mm(a, b)", [(4, 4), (4, 4)]),
    "avg_pool3d": ("torch.ops.aten.avg_pool3d(a, [2, 2, 2])", [(1, 2, 4, 4, 4)]),
    "grid_sample": (
        "torch.grid_sampler(a, b, 0, 0, False)",
        [(1, 1, 4, 4), (1, 4, 4, 2)],
    ),
    "cdist": ("torch.cdist(a, b)", [(4, 6), (5, 6)]),
    "quantile": ("torch.quantile(a.float(), 0.5)", [(4, 6)]),
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
UNUSED = torch.zeros(1)
COUNTER = itertools.count()


def inputs_of(shapes, dtype):
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return tensors + [UNUSED] * (3 - len(tensors))


def save_script(expression, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, not gone
        # One class each: TorchScript defines a method of a class only once.
        kind = type(f"Op{next(COUNTER)}", (torch.jit.ScriptModule,), {})
        module = kind()
        module.define(f"def forward(self, a, b, c):\n  return {expression}\n")
        module.save(path)


@pytest.mark.parametrize("region", DTYPES)
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_op_gives_the_dtype_and_value_of_torch(driver, tmp_path, region, input_dtype):
    tensors, expected = {}, {}
    for name, (expression, shapes) in OPS.items():
        inputs = inputs_of(shapes, input_dtype)
        with torch.autocast("cpu", DTYPES[region]):
            try:
                expected[name] = eval(expression, globals(), dict(zip("abc", inputs)))
            except RuntimeError:
                continue  # torch itself refuses the mix: nothing to compare
        save_script(expression, str(tmp_path / f"{name}.pt"))
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
