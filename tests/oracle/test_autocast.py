"""Autocast against torch.autocast: what every op gives back, in dtype and value.

Each op is compiled to TorchScript here, so that the driver runs just the same
ATen call under ampkit's guard.
"""

import json
import warnings

import pytest
import torch
import torch.nn.functional as F
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
    "linear": ("F.linear(a, b, c)", [(4, 6), (3, 6), (3,)]),
    "linear_3d": ("F.linear(a, b, c)", [(2, 4, 6), (3, 6), (3,)]),
    "einsum": ("torch.einsum('ij,jk->ik', a, b)", [(4, 6), (6, 3)]),
    "conv1d": ("F.conv1d(a, b, c)", [(2, 3, 9), (4, 3, 3), (4,)]),
    "conv2d": ("F.conv2d(a, b, c)", [(2, 3, 9, 9), (4, 3, 3, 3), (4,)]),
    "conv2d_same": (
        "F.conv2d(a, b, padding='same')",
        [(2, 3, 9, 9), (4, 3, 3, 3)],
    ),
    "conv3d": ("F.conv3d(a, b)", [(1, 2, 5, 5, 5), (3, 2, 3, 3, 3)]),
    "conv_transpose2d": (
        "F.conv_transpose2d(a, b)",
        [(2, 3, 5, 5), (3, 4, 3, 3)],
    ),
    "attention": (
        "F.scaled_dot_product_attention(a, b, c)",
        [(1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)],
    ),
    "prelu": ("F.prelu(a, b)", [(4, 6), (1,)]),
    "softmax": ("F.softmax(a, -1)", [(4, 6)]),
    "log_softmax": ("F.log_softmax(a, -1)", [(4, 6)]),
    "batch_norm": (
        "F.batch_norm(a, None, None, b, c, True)",
        [(4, 6), (6,), (6,)],
    ),
    "gelu": ("F.gelu(a)", [(4, 6)]),
    "relu": ("F.relu(a)", [(4, 6)]),
    "exp": ("a.exp()", [(4, 6)]),
    "sum": ("a.sum()", [(4, 6)]),
    "mean": ("a.mean()", [(4, 6)]),
    "mse_loss": ("F.mse_loss(a, b)", [(4, 6), (4, 6)]),
    "l1_loss": ("F.l1_loss(a, b)", [(4, 6), (4, 6)]),
    "huber_loss": ("F.huber_loss(a, b)", [(4, 6), (4, 6)]),
    "bce_with_logits": (
        "F.binary_cross_entropy_with_logits(a, b)",
        [(4, 6), (4, 6)],
    ),
    "binary_cross_entropy": (
        "F.binary_cross_entropy(a.sigmoid(), b.sigmoid())",
        [(4, 6), (4, 6)],
    ),
    "cross_entropy": (
        "F.cross_entropy(a, torch.zeros([4], dtype=torch.long))",
        [(4, 6)],
    ),
    "cat": ("torch.cat([a, torch.mm(a, b)])", [(4, 4), (4, 4)]),
    "stack": ("torch.stack([a, torch.mm(a, b)])", [(4, 4), (4, 4)]),
    "add": ("a + torch.mm(a, b)", [(4, 4), (4, 4)]),
    "avg_pool3d": ("F.avg_pool3d(a, 2)", [(1, 2, 4, 4, 4)]),
    "grid_sample": (
        "F.grid_sample(a, b, align_corners=False)",
        [(1, 1, 4, 4), (1, 4, 4, 2)],
    ),
    "cdist": ("torch.cdist(a, b)", [(4, 6), (5, 6)]),
    "quantile": ("torch.quantile(a.float(), 0.5)", [(4, 6)]),
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
UNUSED = torch.zeros(1)


def inputs_of(shapes, dtype):
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return tensors + [UNUSED] * (3 - len(tensors))


def save_script(expression, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, not gone
        module = torch.jit.ScriptModule()
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
