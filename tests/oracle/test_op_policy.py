"""Op policies against torch.autocast and the dispatcher's own lists.

The `pytorch` policy must be torch.autocast to the dtype and value; `strict` must
do what `ampkit ops` says of it. CUDA is asked without a device: with fake tensors,
whose dispatch keys, and so autocast kernels, are those of a CUDA tensor.
"""

import json
import subprocess
import warnings

import op_expressions
import pytest
import torch
from conftest import BUILD
from op_expressions import OPS, call, inputs_of
from safetensors.torch import load_file, save_file
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

# Kernels of CUDA alone: of these is seen what reaches them.
CUDA_ONLY = {
    "_scaled_dot_product_flash_attention": ("(a, a, a)", (1, 2, 8, 16)),
    "_thnn_fused_gru_cell": ("(a, a, b)", (2, 12), (2, 4)),
    "_thnn_fused_lstm_cell": ("(a, a, b)", (2, 16), (2, 4)),
    "cudnn_convolution": (
        "(a, b, [0, 0], [1, 1], [1, 1], 1, False, False, False)",
        *((1, 3, 8, 8), (4, 3, 3, 3)),
    ),
    "cudnn_convolution_transpose": (
        "(a, b, [0, 0], [0, 0], [1, 1], [1, 1], 1, False, False, False)",
        *((1, 3, 8, 8), (3, 4, 3, 3)),
    ),
}
# Registered for autocast, and not called with numbers here.
NOT_RUN = {"cpu": {"mkldnn_rnn_layer"}, "cuda": set(CUDA_ONLY)}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.fixture(scope="module")
def rules():
    """op: rule, as `ampkit ops` lists them."""
    known = {}

    def ask(policy, device):
        if (policy, device) not in known:
            program = BUILD / "apps" / "ampkit" / "ampkit"
            words = [program, "ops", "--policy", policy, "--device", device, "--json"]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            entries = json.loads(done.stdout)["ops"]
            known[policy, device] = {e["op"]: e["rule"] for e in entries}
        return known[policy, device]

    return ask


def registered(device):
    """The ops that this LibTorch has an autocast kernel for."""
    key = f"Autocast{device.upper()}"
    names = torch._C._dispatch_get_all_op_names()
    return {
        name.removeprefix("aten::")
        for name in names
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    }


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pytorch_policy_lists_exactly_what_is_registered(rules, device):
    listed = rules("pytorch", device)
    assert set(listed) == registered(device)
    assert "inputs" not in listed.values()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("policy", ["pytorch", "strict"])
def test_every_listed_op_is_run_here_or_named(rules, policy, device):
    assert set(rules(policy, device)) - set(OPS) == NOT_RUN[device]


# TorchScript writes these as another op of the same kernel.
ALIASES = {
    "special_softmax": "softmax.int",
    "special_log_softmax": "log_softmax.int",
    "index_put": "index_put.hacked_twin",
    "inverse": "linalg_inv",
    "orgqr": "linalg_householder_product",
}


def save_scripts(path, ops):
    """One module with a method for each op; gives the names of the methods."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, not gone
        kind = type("Ops", (torch.jit.ScriptModule,), {})
        module = kind()
        methods = {}
        for op in ops:
            methods[op] = "op_" + op.replace(".", "_")
            body = op_expressions.script(op)
            module.define(f"def {methods[op]}(self, a, b, c):\n  return {body}\n")
            nodes = getattr(module, methods[op]).graph.nodes()
            called = [node.schema() for node in nodes]
            meant = f"aten::{ALIASES.get(op, op)}("
            assert any(schema.startswith(meant) for schema in called), (op, called)
        module.save(str(path))
    return methods


@pytest.fixture
def ours(driver, tmp_path_factory):
    """What ampkit gives for ops with inputs of some dtype in some region."""

    def run(policy, region, inputs):
        folder = tmp_path_factory.mktemp("ops")
        methods = save_scripts(folder / "ops.pt", inputs)
        tensors = {
            f"{op}.{i}": tensor.clone()
            for op, list_of_op in inputs.items()
            for i, tensor in enumerate(list_of_op)
        }
        save_file(tensors, folder / "in.safetensors")
        (folder / "ops.json").write_text(json.dumps(methods))
        driver("op_policy", policy, region, folder, folder / "out.safetensors")
        return load_file(folder / "out.safetensors")

    return run


def result_or_none(op, inputs):
    """None where torch refuses these dtypes."""
    try:
        return call(op, inputs)
    except (RuntimeError, NotImplementedError):
        return None


@pytest.mark.parametrize("region", DTYPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pytorch_policy_equals_torch_autocast(ours, region, dtype):
    inputs = {op: inputs_of(op, dtype) for op in OPS}
    expected = {}
    with torch.autocast("cpu", DTYPES[region]):
        for op, values in inputs.items():
            result = result_or_none(op, values)
            if result is not None:
                expected[op] = result
    if dtype == torch.float32:
        assert set(expected) == set(OPS)
    found = ours("pytorch", region, {op: inputs[op] for op in expected})
    # Relative to the largest element, a rounding of the result and, in stock
    # kernels without 16-bit units, one of a partial sum.
    for op, value in expected.items():
        assert found[op].dtype == value.dtype, op
        tolerance = 2 * torch.finfo(DTYPES[region]).eps
        largest = value.double().nan_to_num(0, 0, 0).abs().max().item()
        torch.testing.assert_close(
            found[op],
            value,
            rtol=0,
            atol=tolerance * largest,
            equal_nan=True,
            msg=lambda text, op=op: f"{op}: {text}",
        )


def is_half(tensor):
    return tensor.dtype in (torch.bfloat16, torch.float16)


def cast_by_rule(rule, tensors, region):
    """The inputs of an op as its rule says; float64 stays."""
    single = [t for t in tensors if is_half(t) or t.dtype == torch.float32]
    wide = any(t.dtype == torch.float32 for t in single)
    target = {
        "inputs": None,
        "lower-precision": region,
        "float32": torch.float32,
        "promote": torch.float32 if wide else region,
    }[rule]
    if target is None:
        return tensors
    return [t.to(target) if t.dtype != torch.float64 else t for t in tensors]


def used(op, tensors):
    return tensors[: len(op_expressions.shapes_of(op))]


# Gets float32 as its dtype argument, as from torch on CUDA, and refuses a 16-bit
# input beside that.
REFUSES_16_BITS = {"linalg_matrix_norm"}
# Has no float64 kernel.
ONLY_FLOAT32 = {"_grid_sampler_2d_cpu_fallback"}


@pytest.mark.parametrize("region", DTYPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_strict_policy_runs_each_op_in_the_dtype_that_it_lists(
    rules, ours, region, dtype
):
    listed = rules("strict", "cpu")
    expected = {}
    left_out = ONLY_FLOAT32 if dtype == torch.float64 else set()
    left_out = REFUSES_16_BITS if dtype.itemsize == 2 else left_out
    for op in set(listed) & set(OPS) - left_out:
        tensors = used(op, inputs_of(op, dtype))
        cast = cast_by_rule(listed[op], tensors, DTYPES[region])
        result = result_or_none(op, cast)
        if result is not None:
            expected[op] = result.dtype
        elif listed[op] == "float32":
            raise AssertionError(f"{op} does not run in {cast[0].dtype}")
    inputs = {op: inputs_of(op, dtype) for op in expected}
    found = ours("strict", region, inputs)
    table = {op: found[op].dtype for op in expected}
    assert table == expected
    if dtype in (torch.bfloat16, torch.float16):
        for op in ("softmax.int", "exp", "sum", "layer_norm", "cross_entropy_loss"):
            assert table[op] == torch.float32


def test_strict_policy_is_float32_on_both_devices_alike(rules):
    by_device = {}
    for device in ("cpu", "cuda"):
        listed = rules("strict", device)
        by_device[device] = {op for op, rule in listed.items() if rule == "float32"}
        stock = rules("pytorch", device)
        for op, rule in stock.items():
            # Strict may only widen.
            assert listed[op] in (rule, "float32"), op
    assert by_device["cpu"] == by_device["cuda"]


# LibTorch's kernels ask for a real device before their shapes are known.
NOT_FAKE = {
    *("grid_sampler", "gru_cell", "lstm_cell", "geqrf"),
    *("ctc_loss.IntList", "ctc_loss.Tensor", "fake_quantize_per_tensor_affine"),
    *ONLY_FLOAT32,
}


def on_cuda(op, tensors, region=None):
    """The dtype of the result on a CUDA tensor, in a region of torch's if given.

    None where torch refuses.
    """
    with FakeTensorMode(), torch.device("cuda"):
        fakes = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
        if region is not None:
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", region)
        try:
            result = result_or_none(op, fakes)
        finally:
            torch.set_autocast_enabled("cuda", False)
    return None if result is None else result.dtype


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("region", DTYPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rules_for_cuda_say_what_torch_does_there(rules, region, dtype):
    compared = set()
    for op, rule in rules("pytorch", "cuda").items():
        if op in NOT_RUN["cuda"] | NOT_FAKE:
            continue
        tensors = used(op, inputs_of(op, dtype))
        found = on_cuda(op, tensors, DTYPES[region])
        if rule == "refuse":
            assert found is None, op
        elif found is not None:
            cast = cast_by_rule(rule, tensors, DTYPES[region])
            assert found == on_cuda(op, cast), op
        compared.add(op)
        if dtype == torch.float32 and rule != "refuse":
            assert found is not None, op
    assert compared == registered("cuda") - NOT_RUN["cuda"] - NOT_FAKE


class Reaching(TorchDispatchMode):
    """The dtypes with which an op is called, behind autocast."""

    def __init__(self, op):
        super().__init__()
        self.op = getattr(torch.ops.aten, op).default
        self.dtypes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is self.op:
            self.dtypes |= {a.dtype for a in args if isinstance(a, torch.Tensor)}
            raise NotImplementedError  # there is no device to run it
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("op", CUDA_ONLY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rules_for_kernels_of_cuda_are_what_reaches_them(rules, op, dtype):
    arguments, *shapes = CUDA_ONLY[op]
    with FakeTensorMode(), torch.device("cuda"), Reaching(op) as seen:
        tensors = [torch.empty(shape, dtype=dtype) for shape in shapes]
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.float16)
        try:
            names = {"call": seen.op, **dict(zip("ab", tensors))}
            with pytest.raises((NotImplementedError, TypeError)):
                eval("call" + arguments, names)
        finally:
            torch.set_autocast_enabled("cuda", False)
    rule = rules("pytorch", "cuda")[op]
    meant = {"lower-precision": torch.float16, "float32": torch.float32}[rule]
    assert seen.dtypes == {meant}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_strict_policy_gives_float32_from_16_bits_on_cuda(rules, dtype):
    """Result dtypes of what strict adds to the lists of CUDA."""
    strict, stock = rules("strict", "cuda"), rules("pytorch", "cuda")
    for op, rule in strict.items():
        if op in NOT_RUN["cuda"] | NOT_FAKE or rule != "float32":
            continue
        tensors = used(op, inputs_of(op, dtype))
        result = on_cuda(op, cast_by_rule(rule, tensors, torch.bfloat16))
        if result in (None, torch.int64):  # no kernel for CUDA; a rank
            continue
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        assert result == wide, op
        refused = op in REFUSES_16_BITS and dtype.itemsize == 2
        if op in stock and stock[op] == "float32" and not refused:
            assert on_cuda(op, tensors, torch.bfloat16) == wide, op
