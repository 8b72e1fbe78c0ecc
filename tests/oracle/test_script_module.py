"""Modules of torch.jit.script() and trace(), trained by ampkit, against the
original in Python's eager mode.

LibTorch's own 16-bit kernels and update on both sides: every result must be
equal to the last bit.
"""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 5
DTYPES = {"fp32": None, "bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}


class Mlp(nn.Module):
    shape = (16, 12)

    def __init__(self, p=0.0):
        super().__init__()
        self.up = nn.Linear(12, 24)
        self.dropout = nn.Dropout(p)
        self.down = nn.Linear(24, 4)

    def forward(self, x):
        return self.down(self.dropout(torch.relu(self.up(x))))


class Conv(nn.Module):
    shape = (8, 2, 8, 8)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Attention(nn.Module):
    shape = (4, 6, 16)

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(n, length, 3, 4, width // 4)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1)
        y = (scores @ v).transpose(1, 2).reshape(n, length, width)
        return self.head((x + self.out(y)).mean(1))


MODELS = {"mlp": Mlp, "conv": Conv, "attention": Attention}


def make(name):
    torch.manual_seed(7)
    model = MODELS[name]()
    x = torch.randn(STEPS, *model.shape)
    y = torch.randint(4, (STEPS, model.shape[0]))
    return model, x, y


def compiled(model, how, x):
    """Without the deprecation warnings of TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "script":
            return torch.jit.script(model)
        before = {k: v.clone() for k, v in model.state_dict().items()}
        traced = torch.jit.trace(model, x, check_trace=False)
        model.load_state_dict(before)  # tracing ran the batch norm
        return traced


def train(model, x, y, dtype, fixed_mode):
    """What the driver does, in Python's eager mode; with `fixed_mode` as a
    module traced in training mode, which evaluates in training mode too."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=2.0**10, growth_interval=2, enabled=dtype == torch.float16
    )
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    losses = []
    for batch, target in zip(x, y):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(batch), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        average.update_parameters(model)
        losses.append(loss.detach())
    with torch.no_grad():
        # Buffers are not averaged: the present ones.
        average.module.load_state_dict(dict(model.named_buffers()), strict=False)
        evaluation = average.module.train(fixed_mode)(x[0])
    # The end of the swap gives the model its own buffers back.
    result = {"losses": torch.stack(losses), "evaluation": evaluation}
    return result | {f"model.{k}": v for k, v in model.state_dict().items()}


@pytest.fixture
def train_script(driver, tmp_path, monkeypatch):
    monkeypatch.setenv("AMPKIT_CPU_16BIT", "native")

    def run(script, x, y, precision, kill_after=0, output="output"):
        save_file({"x": x, "y": y}, tmp_path / "batches")
        script.save(tmp_path / "model.pt")
        names = ("batches", output, "checkpoint")
        batches, output, checkpoint = (tmp_path / name for name in names)
        driver(
            "script_train",
            tmp_path / "model.pt",
            precision,
            batches,
            output,
            checkpoint,
            kill_after,
        )
        return load_file(output)

    return run


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", MODELS)
def test_five_steps_are_those_of_eager_mode(name, how, precision, train_script):
    model, x, y = make(name)
    ours = train_script(compiled(model, how, x[0]), x, y, precision)
    expected = train(model, x, y, DTYPES[precision], fixed_mode=how == "trace")
    assert set(ours) == set(expected)
    for key, value in expected.items():
        assert ours[key].dtype == value.dtype, key
        assert torch.equal(ours[key], value), key
    if name == "conv":
        assert ours["model.norm.num_batches_tracked"].dtype == torch.int64


def test_resumed_after_a_kill_equals_the_run_that_was_not_killed(
    train_script, tmp_path
):
    model, x, y = make("conv")
    script = compiled(model, "script", x[0])
    whole = train_script(script, x, y, "fp16-mixed")
    with pytest.raises(AssertionError, match="-9 == 0"):
        train_script(script, x, y, "fp16-mixed", kill_after=3, output="none")
    assert not (tmp_path / "none").exists()
    resumed = train_script(script, x, y, "fp16-mixed", output="resumed")
    assert torch.equal(resumed.pop("losses"), whole.pop("losses")[3:])
    assert set(resumed) == set(whole)
    for key, value in whole.items():
        assert torch.equal(resumed[key], value), key


class CastInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return self.head(x.half().float())


class AutocastInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.head(x.float())


class Forks(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        future = torch.jit.fork(self.head, x)
        return torch.jit.wait(future)


def traced_under_autocast(model, x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.jit.trace(model, x, check_trace=False)


def frozen(model, x):
    return torch.jit.freeze(torch.jit.script(model.eval()))


def quantized(model, x):
    with_int8 = torch.ao.quantization.quantize_dynamic(model.eval(), {nn.Linear})
    return torch.jit.script(with_int8)


def without_gradients(model, x):
    return torch.jit.script(model.requires_grad_(False))


def script(model, x):
    return torch.jit.script(model)


def traced(model, x):
    return torch.jit.trace(model, x, check_trace=False)


class WithConstant(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 4)
        self.table = [torch.randn(12, 12)]  # a list: neither is registered

    def forward(self, x):
        return self.head(x @ self.table[0])


@pytest.fixture
def look(driver, tmp_path):
    """Findings and error of load_script_module()."""

    def run(module):
        module.save(tmp_path / "model.pt")
        driver("script_issues", tmp_path / "model.pt", tmp_path / "found.json")
        found = json.loads((tmp_path / "found.json").read_text())
        return found["findings"], found["error"]

    return run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make_module,model,issue,texts",
    [
        (frozen, Mlp, "no_parameters", ["before torch.jit.freeze()"]),
        (without_gradients, Mlp, "no_gradients", ["requires_grad_(True)"]),
        (quantized, Mlp, "inference_only", ["quantized::linear_dynamic at linear.py:"]),
        (script, AutocastInside, "own_autocast", ["remove it", "script_module.py:"]),
        (traced_under_autocast, Mlp, "cast_weights", ["aten::to at linear.py:"]),
        (script, Forks, "forks", ["one after the other"]),
    ],
)
def test_what_would_not_train_is_refused(make_module, model, issue, texts, look):
    findings, error = look(make_module(model(), torch.randn(2, 12)))
    assert findings == {}
    assert "would not train as it does in Python:" in error
    assert f"\n  {issue}: " in error
    for text in texts:
        assert text in error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make_module,model,issue,texts",
    [
        (traced, lambda: Mlp(0.5).eval(), "fixed_mode", ["aten::dropout at "]),
        (traced, lambda: Mlp(0.5).train(), "fixed_mode", ["torch.jit.script()"]),
        (traced, WithConstant, "constant_tensors", ["not trained"]),
        (script, CastInside, "constant_dtype", ["aten::to at test_script_module.py:"]),
    ],
)
def test_what_trains_differently_is_a_warning(make_module, model, issue, texts, look):
    findings, error = look(make_module(model(), torch.randn(2, 12)))
    assert error == ""
    assert list(findings) == [issue]
    for text in texts:
        assert text in findings[issue]


@pytest.mark.filterwarnings("ignore")
def test_a_batch_norm_traced_in_evaluation_mode_is_a_warning(look):
    model = Conv().eval()
    findings, error = look(traced(model, torch.randn(Conv.shape)))
    assert error == ""
    assert list(findings) == ["fixed_mode"]
    assert "aten::batch_norm at " in findings["fixed_mode"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [lambda: Mlp(0.5), Conv, Attention])
def test_an_ordinary_script_has_no_issues(model, look):
    assert look(torch.jit.script(model())) == ({}, "")


@pytest.mark.filterwarnings("ignore")
def test_a_module_optimized_for_inference_is_no_readable_file(look):
    optimized = torch.jit.optimize_for_inference(torch.jit.script(Conv().eval()))
    findings, error = look(optimized)
    assert findings == {}
    assert "load_script_module: cannot read" in error
    assert "not optimized for inference" in error
