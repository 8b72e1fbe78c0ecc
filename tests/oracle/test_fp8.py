"""Fp8Linears against torchao, whose emulation runs on the CPU, and delayed
scaling, which torchao no longer has, against TransformerEngine's rules written
out in torch. Bytes, scales, outputs and gradients are compared bit by bit."""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao.float8.config import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear
    from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated

INF = float("inf")
NAN = float("nan")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = {"e4m3": E4M3, "e5m2": E5M2}
TABLE = torch.tensor(
    [INF, -INF, NAN, 448, 449, 464, 465, 480, 1e5, -1e5, 3.4e38, 57344, 61439, 61440]
    + [0.0, -0.0, 2**-6, 2**-9, 2**-10, 1.01 * 2**-10, -(2**-9), 1e-9]
    + [2**-14, 2**-16, 2**-17, 1.01 * 2**-17, -(2**-16), 1e-40]
)


def finite_tensors():
    generator = torch.Generator().manual_seed(7)
    patterns = torch.arange(0, 2**16, dtype=torch.int32)
    every_bf16 = (patterns << 16).view(torch.float32)
    return {
        "table": TABLE[3:].clone(),
        "bf16": every_bf16[every_bf16.isfinite()],
        "normal": torch.randn(20, 30, generator=generator),
        "tiny": torch.randn(50, generator=generator) * 1e-9,
        "huge": torch.randn(50, generator=generator) * 1e30,
        "narrow": torch.randn(50, generator=generator).bfloat16(),
        "zero": torch.zeros(3),
    }


@pytest.mark.parametrize("name", DTYPES)
def test_bytes_and_scales_are_torchaos(driver, tmp_path, name):
    dtype = DTYPES[name]
    tensors = finite_tensors()
    save_file(tensors, tmp_path / "in.safetensors")
    driver("fp8_quantize", name, tmp_path / "in.safetensors", tmp_path / "out")
    ours = load_file(tmp_path / "out")
    for key, tensor in tensors.items():
        bits = to_fp8_saturated(tensor.float(), dtype).view(torch.uint8)
        assert ours[f"{key}.one"].equal(bits), key
        for kind in ("exact", "rounded"):
            scale = tensor_to_scale(
                tensor, dtype, round_scales_to_power_of_2=kind == "rounded"
            )
            assert ours[f"{key}.{kind}.scale"].equal(scale), (key, kind)
            bits = to_fp8_saturated(tensor.float() * scale, dtype).view(torch.uint8)
            assert ours[f"{key}.{kind}"].equal(bits), (key, kind)


@pytest.mark.parametrize("name", DTYPES)
def test_what_is_not_finite_stays_so_in_every_scale(driver, tmp_path, name):
    save_file({"table": TABLE}, tmp_path / "in.safetensors")
    driver("fp8_quantize", name, tmp_path / "in.safetensors", tmp_path / "out")
    ours = load_file(tmp_path / "out")
    for kind in ("one", "exact", "rounded"):
        values = ours[f"table.{kind}"].view(DTYPES[name]).float()
        assert values.isfinite().equal(TABLE.isfinite()), kind
        assert values.signbit()[3:].equal(TABLE.signbit()[3:]), kind
    if name == "e5m2":
        assert values[:2].tolist() == [INF, -INF]
    # An amax that is not finite leaves the scale at 1, as in TransformerEngine.
    assert ours["table.exact.scale"] == 1


def layer_tensors(steps, outlier_step=None):
    generator = torch.Generator().manual_seed(11)

    def randn(*shape):
        return torch.randn(shape, generator=generator)

    tensors = {"weight": randn(48, 32) * 0.1, "bias": randn(48)}
    for step in range(steps):
        size = 50.0 if step == outlier_step else 1.0 + step
        tensors[f"input.{step}"] = randn(2, 16, 32) * size
        tensors[f"grad.{step}"] = randn(2, 16, 48).bfloat16().float() * 1e-3 / size
    return tensors


def run_driver(driver, tmp_path, settings, tensors):
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    save_file(tensors, tmp_path / "in.safetensors")
    driver(
        "fp8_linear",
        tmp_path / "settings.json",
        tmp_path / "in.safetensors",
        tmp_path / "out.safetensors",
    )
    return load_file(tmp_path / "out.safetensors")


def torchao_step(config, tensors):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = torch.nn.Linear(32, 48)
        layer = Float8Linear.from_float(plain, config)
    layer.weight.data = tensors["weight"].clone()
    layer.bias.data = tensors["bias"].clone()
    x = tensors["input.0"].clone().requires_grad_()
    y = layer(x.bfloat16())
    y.backward(tensors["grad.0"].bfloat16())
    return y.detach(), x.grad, layer.weight.grad


ROW_WISE = Float8LinearConfig.from_recipe_name("rowwise")
TORCHAO = {
    # Scales by powers of two commute with rounding: the order in which torchao
    # applies them makes no difference.
    "current": (
        {"recipe": "current", "round_scales_to_power_of_2": True},
        Float8LinearConfig(emulate=True, round_scales_to_power_of_2=True),
    ),
    "row_wise": (
        {"recipe": "row_wise"},
        Float8LinearConfig(
            cast_config_input=ROW_WISE.cast_config_input,
            cast_config_weight=ROW_WISE.cast_config_weight,
            cast_config_grad_output=ROW_WISE.cast_config_grad_output,
            round_scales_to_power_of_2=ROW_WISE.round_scales_to_power_of_2,
            emulate=True,
        ),
    ),
}


@pytest.mark.parametrize("name", TORCHAO)
def test_output_and_gradients_are_torchaos(driver, tmp_path, name):
    settings, config = TORCHAO[name]
    tensors = layer_tensors(1)
    ours = run_driver(driver, tmp_path, settings | {"steps": 1}, tensors)
    y, grad_input, grad_weight = torchao_step(config, tensors)
    assert ours["output.0"].equal(y)
    assert ours["grad_input.0"].equal(grad_input)
    assert ours["grad_weight.0"].equal(grad_weight)
    grad = tensors["grad.0"].bfloat16().float()
    assert ours["grad_bias.0"].equal(grad.flatten(0, 1).sum(0))


def test_unrounded_scales_differ_from_torchao_by_rounding_only(driver, tmp_path):
    tensors = layer_tensors(1)
    settings = {"recipe": "current", "steps": 1}
    ours = run_driver(driver, tmp_path, settings, tensors)
    expected = torchao_step(Float8LinearConfig(emulate=True), tensors)
    for key, value in zip(("output", "grad_input", "grad_weight"), expected):
        # torchao divides by the scale where _scaled_mm multiplies by its
        # inverse: one BF16 rounding of the largest element may fall elsewhere.
        error = (ours[f"{key}.0"].float() - value.float()).abs().max()
        assert error <= 2**-8 * value.float().abs().max(), key


class Formula:
    """One FP8 linear layer by the documented rules; scales[role], role 0 to 2:
    input, weight, gradient."""

    def __init__(self, settings, tensors):
        self.settings = settings
        self.tensors = tensors
        self.length = settings.get("amax_history_len", 1024)
        self.gradient = E4M3 if settings.get("fp8_format") == "e4m3" else E5M2
        self.history = torch.zeros(self.length, 3)
        self.scale = torch.ones(3)
        self.fp8_max = torch.tensor([448.0, 448.0, torch.finfo(self.gradient).max])

    def quantize(self, tensor, role):
        dtype = self.gradient if role == 2 else E4M3
        if self.settings["recipe"] == "delayed":
            amax = tensor.abs().max().float()
            self.history[0, role] = torch.maximum(self.history[0, role], amax)
            scale = self.scale[role]
        else:
            scale = tensor_to_scale(tensor, dtype)
        return to_fp8_saturated(tensor.float() * scale, dtype), scale.reciprocal()

    def product(self, a, b):
        # PyTorch's own FP8 product on the CPU.
        (a, a_inverse), (b, b_inverse) = a, b
        return torch._scaled_mm(a, b, a_inverse, b_inverse, out_dtype=torch.bfloat16)

    def step(self, index):
        x = self.tensors[f"input.{index}"].flatten(0, 1).bfloat16()
        grad = self.tensors[f"grad.{index}"].flatten(0, 1).bfloat16()
        x8, w8 = self.quantize(x, 0), self.quantize(self.tensors["weight"], 1)
        g8 = self.quantize(grad, 2)
        result = {
            "output": self.product(x8, (w8[0].t(), w8[1]))
            + self.tensors["bias"].bfloat16(),
            "grad_input": self.product(g8, w8).float(),
            "grad_weight": self.product((g8[0].t(), g8[1]), x8).float(),
            "grad_bias": grad.float().sum(0),
        }
        if self.settings["recipe"] == "delayed":
            self.update()
            result["0.amax_history"] = self.history
            result["0.scale"] = self.scale
            result["0.scale_inv"] = self.scale.reciprocal()
        return result

    def update(self):
        if self.settings.get("amax_compute_algo", "max") == "max":
            amax = self.history.max(0).values
        else:
            amax = self.history[0].clone()
        scale = (self.fp8_max / amax) / 2 ** self.settings.get("margin", 0)
        self.scale = torch.where(amax > 0, scale, self.scale)
        self.history = self.history.roll(-1, 0)
        self.history[0] = 0


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": "current"},
        {"recipe": "current", "fp8_format": "e4m3"},
        {"recipe": "delayed"},
        {"recipe": "delayed", "amax_history_len": 3},
        {"recipe": "delayed", "amax_history_len": 1, "margin": 1},
        {"recipe": "delayed", "amax_compute_algo": "most_recent", "fp8_format": "e4m3"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_steps_follow_the_written_out_rules(driver, tmp_path, settings):
    steps = 7
    tensors = layer_tensors(steps, outlier_step=3)
    ours = run_driver(driver, tmp_path, settings | {"steps": steps}, tensors)
    formula = Formula(settings, tensors)
    for step in range(steps):
        for key, value in formula.step(step).items():
            assert ours[f"{key}.{step}"].flatten().equal(value.flatten()), (key, step)
