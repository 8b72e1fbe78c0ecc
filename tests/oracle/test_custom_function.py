"""CustomForward and CustomBackward against torch.amp.custom_fwd and custom_bwd:
what forward and backward see, and the gradients, to the last bit."""

import itertools
import json

import torch
from safetensors.torch import load_file, save_file

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
REGIONS = ["off", "bf16", "fp16"]


def make_product(cast_inputs, seen):
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            y = torch.mm(a, b)
            seen["input"] = NAMES[a.dtype]
            seen["forward"] = NAMES[y.dtype]
            return y

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            grad_a = torch.mm(grad, b.t())
            grad_b = torch.mm(a.t(), grad)
            seen["backward"] = NAMES[grad_a.dtype]
            seen["enabled"] = torch.is_autocast_enabled("cpu")
            seen["dtype"] = NAMES[torch.get_autocast_dtype("cpu")]
            return grad_a, grad_b

    return Product


def region(name):
    return torch.autocast("cpu", DTYPES.get(name, torch.bfloat16), enabled=name != "off")


def run_in_python(case, tensors):
    seen = {}
    a = tensors["a"].to(DTYPES[case["inputs"]], copy=True).requires_grad_()
    b = tensors["b"].to(DTYPES[case["inputs"]], copy=True).requires_grad_()
    product = make_product(DTYPES.get(case["cast"]), seen)
    with region(case["forward"]):
        loss = (product.apply(a, b).float() * tensors["weights"]).sum()
    with region(case["backward"]):
        loss.backward()
    return seen, a.grad, b.grad


def test_every_combination_sees_and_gives_what_torch_does(driver, tmp_path):
    keys = ("forward", "cast", "inputs", "backward")
    values = (REGIONS, ["none", "fp32", "bf16", "fp16"], list(DTYPES), REGIONS)
    cases = [dict(zip(keys, combination)) for combination in itertools.product(*values)]
    generator = torch.Generator().manual_seed(7)
    shapes = {"a": (4, 6), "b": (6, 3), "weights": (4, 3)}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "in.safetensors")
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    driver("custom_function", tmp_path)
    ours = json.loads((tmp_path / "out.json").read_text())
    gradients = load_file(tmp_path / "out.safetensors")
    assert len(ours) == len(cases) == 144
    for index, case in enumerate(cases):
        seen, grad_a, grad_b = run_in_python(case, tensors)
        assert ours[index] == seen, case
        for name, expected in (("a", grad_a), ("b", grad_b)):
            assert gradients[f"{name}.{index}"].dtype == expected.dtype, case
            assert torch.equal(gradients[f"{name}.{index}"], expected), case
    # Every dtype that a region or a cast can give was seen.
    assert {case["backward"] for case in ours} == set(DTYPES)
