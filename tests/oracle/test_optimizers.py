"""The optimizers, clipping and averaging against torch.optim and torch.nn.utils.

Names of optimizers' tests, from the symptom: docs/symptoms.md."""

import copy
import json

import pytest
import torch
from optimizer_tasks import (
    CASES,
    FUSED,
    MATRICES,
    MUON,
    STEPS,
    as_json,
    largest_error,
    make_task,
    run_python,
    weights_of,
)

ALL = pytest.mark.parametrize(("kind", "options"), CASES.values(), ids=CASES)
FUSED_CASES = {name: case for name, case in CASES.items() if case[0] in FUSED}
WITH_FUSED_OP = pytest.mark.parametrize(
    ("kind", "options"), FUSED_CASES.values(), ids=FUSED_CASES
)
KERNELS = pytest.mark.parametrize("kernel", ["stock", "highway"])
EXTRAS = pytest.mark.parametrize(
    "extras",
    [{}, {"divisor": 1024.0, "found_inf": 0.0}, {"divisor": 3.7, "found_inf": 0.0}],
    ids=["plain", "scaled", "scaled-odd"],
)
SIXTEEN_BIT = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"]
)

# Each side rounds each weight once a step, by half an ulp: 2^-24 of its size,
# which stays below 8. The sum over the steps bounds what an honest fp32 kernel
# may lose.
BOUND = STEPS * 8 * 2**-24


@pytest.fixture
def ask(driver, tmp_path):
    def run(command, task):
        source, result = tmp_path / "task.json", tmp_path / "result.json"
        source.write_text(json.dumps(task))
        driver(command, source, result)
        return json.loads(result.read_text())

    return run


def assert_same_bits(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        for x, y in zip(a, b):
            assert torch.equal(x, y)


@EXTRAS
@WITH_FUSED_OP
def test_stock_kernel_equals_fused_torch_to_the_last_bit(ask, kind, options, extras):
    task = make_task(kind, options, "stock", **extras)
    ours = weights_of(ask("optimizer", task))
    assert len(ours) == STEPS
    assert_same_bits(ours, run_python(task, torch.float32, fused=True))


def test_cpp_optimizers_do_not_differ_from_python_ones_rmsprop_to_the_last_bit(ask):
    kind, options = CASES["rmsprop-momentum"]
    task = make_task(kind, options, "stock")
    ours = weights_of(ask("optimizer", task))
    assert_same_bits(ours, run_python(task, torch.float32, fused=False))


@EXTRAS
@KERNELS
@ALL
def test_cpp_optimizers_do_not_differ_from_python_ones(
    ask, kernel, kind, options, extras
):
    task = make_task(kind, options, kernel, **extras)
    ours = weights_of(ask("optimizer", task))
    exact = run_python(task, torch.float64, fused=False)
    theirs = run_python(task, torch.float32, fused=True)
    assert largest_error(ours, exact) < BOUND
    # PyTorch's own error is the practical measure.
    assert largest_error(ours, exact) < 2 * largest_error(theirs, exact) + 2e-7
    assert largest_error(ours, theirs) < BOUND


@KERNELS
@ALL
def test_skipped_steps_change_nothing(ask, kernel, kind, options):
    task = make_task(kind, options, kernel)
    for i, step in enumerate(task["steps"]):
        step.update(divisor=2.0, found_inf=float(i % 3 == 1) * 2)
    kept = copy.deepcopy(task)
    kept["steps"] = [s for s in kept["steps"] if s["found_inf"] == 0]
    assert 0 < len(kept["steps"]) < STEPS
    skipping = weights_of(ask("optimizer", task))[-1]
    without = weights_of(ask("optimizer", kept))[-1]
    assert_same_bits([skipping], [without])


@KERNELS
@ALL
def test_clipped_steps(ask, kernel, kind, options):
    task = make_task(kind, options, kernel, max_norm=1.5)
    ours = weights_of(ask("optimizer", task))
    theirs = run_python(task, torch.float32, fused=True)
    # The norm is summed in fp64 here and in fp32 there: the factor differs by
    # some 2^-23, and so does each step, whose sum stays below 8.
    assert largest_error(ours, theirs) < 2 * BOUND


@KERNELS
@SIXTEEN_BIT
@ALL
def test_16_bit_parameters_follow_an_fp32_run(ask, kernel, dtype, kind, options):
    task = make_task(kind, options, kernel, dtype)
    result = ask("optimizer", task)
    reference = run_python(task, torch.float32, fused=True, cast=dtype)
    masters = [torch.tensor(m, dtype=torch.float64) for m in result["masters"]]
    for master, weight, expected in zip(masters, weights_of(result)[-1], reference[-1]):
        if kernel == "stock" and kind in FUSED:
            assert torch.equal(master, expected)
        else:
            torch.testing.assert_close(master, expected, rtol=0, atol=BOUND)
        assert torch.equal(weight, master.float().to(dtype).double())


@pytest.mark.parametrize("kernel", ["automatic", "stock"])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16],
    ids=["fp32", "fp16", "bf16"],
)
@ALL
def test_a_run_restored_into_a_new_optimizer_goes_on_bit_for_bit(
    ask, kernel, dtype, kind, options
):
    task = make_task(kind, options, kernel, dtype)
    whole = ask("optimizer", task)
    assert ask("optimizer", dict(task, restore_after=23)) == whole


class TestMuon:
    def test_stock_kernel_equals_torch_to_the_last_bit(self, ask):
        task = make_task("Muon", MUON, "stock", shapes=MATRICES)
        ours = weights_of(ask("optimizer", task))
        assert_same_bits(ours, run_python(task, torch.float32, fused=False))

    @SIXTEEN_BIT
    def test_16_bit_parameters_follow_an_fp32_run(self, ask, dtype):
        task = make_task("Muon", MUON, "stock", dtype, shapes=MATRICES)
        result = ask("optimizer", task)
        reference = run_python(task, torch.float32, fused=False, cast=dtype)
        for master, expected in zip(result["masters"], reference[-1]):
            assert torch.equal(torch.tensor(master, dtype=torch.float64), expected)

    def test_products_in_fp32_are_as_near_to_torch_as_bf16_allows(self, ask):
        task = make_task("Muon", MUON, "automatic", shapes=MATRICES)
        ours = weights_of(ask("optimizer", task))
        theirs = run_python(task, torch.float32, fused=False)
        # Sums of products in another order round to the neighbouring bf16 now
        # and then, and five iterations triple that or so: some percent of a
        # step, of which each is at most 0.06 an element here.
        assert largest_error(ours[:1], theirs[:1]) < 0.06 * 3 * 2**-7
        assert largest_error(ours, theirs) < STEPS * 0.06 * 3 * 2**-7

    def test_a_run_restored_into_a_new_optimizer_goes_on_bit_for_bit(self, ask):
        task = make_task("Muon", MUON, "automatic", shapes=MATRICES)
        whole = ask("optimizer", task)
        assert ask("optimizer", dict(task, restore_after=23)) == whole


@KERNELS
def test_small_updates_of_bf16_weights_are_not_lost(ask, kernel):
    """lr 6e-4 on ones: each step alone is below half a bf16 ulp."""
    ones, grads = torch.ones(64), torch.rand(100, 64) + 0.5
    group = {"options": dict(lr=6e-4), "params": [as_json(ones)]}
    steps = [{"lrs": [6e-4], "grads": [as_json(g.bfloat16())]} for g in grads]
    task = {
        "kind": "AdamW",
        "kernel": kernel,
        "dtype": "bfloat16",
        "groups": [group],
        "steps": steps,
    }
    last = weights_of(ask("optimizer", task))[-1][0]
    reference = run_python(task, torch.float32, fused=True, cast=torch.bfloat16)
    expected = reference[-1][0]
    ulp = 2**-8  # of numbers in [0.5, 1)
    assert (expected < 0.96).all()
    assert (last - expected).abs().max() <= ulp / 2 + 1e-6


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, "inf"])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(ask, norm_type, max_norm):
    torch.manual_seed(1)
    grads = [torch.randn(40, 3), torch.randn(7)]
    task = {"kind": "norm", "dtype": "float32", "grads": [as_json(g) for g in grads]}
    result = ask("clip", dict(task, max_norm=max_norm, norm_type=norm_type))
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    for p, g in zip(parameters, grads):
        p.grad = g.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, float(norm_type))
    assert result["norm"] == pytest.approx(norm.item(), rel=1e-6)
    for ours, p in zip(result["grads"], parameters):
        torch.testing.assert_close(
            torch.tensor(ours), p.grad.flatten(), rtol=1e-6, atol=0
        )


def test_clip_grad_value(ask):
    torch.manual_seed(1)
    grad = torch.randn(50)
    task = {"kind": "value", "dtype": "float32", "grads": [as_json(grad)]}
    parameter = torch.nn.Parameter(torch.zeros(50))
    parameter.grad = grad.clone()
    torch.nn.utils.clip_grad_value_([parameter], 0.3)
    ours = torch.tensor(ask("clip", dict(task, clip_value=0.3))["grads"][0])
    assert torch.equal(ours, parameter.grad)


def clipped_adaptively(grad, weight, clip_factor, eps):
    """Brock et al., 2021, equation 3, in fp64."""
    grad, weight = grad.double(), weight.double()
    clipped = grad.clone()
    rows = [slice(None)] if grad.dim() < 2 else range(grad.size(0))
    for i in rows:
        limit = clip_factor * max(weight[i].norm().item(), eps)
        norm = grad[i].norm().item()
        if norm > limit:
            clipped[i] = grad[i] * (limit / norm)
    return clipped


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(torch.float32, 2**-22), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)],
)
def test_adaptive_clipping_follows_the_paper(ask, dtype, precision):
    torch.manual_seed(1)
    shapes = [(6, 4), (3, 2, 3, 3), (9,), (5, 1)]
    weights = [(torch.randn(s) * 10).to(dtype) for s in shapes]
    weights[3] = torch.zeros(5, 1).to(dtype)  # below eps
    grads = [torch.randn(s).to(dtype) for s in shapes]
    grads[0][:3] *= 0.01  # these rows are within the limit
    task = {
        "kind": "adaptive",
        "dtype": str(dtype).removeprefix("torch."),
        "grads": [as_json(g) for g in grads],
        "weights": [as_json(w) for w in weights],
    }
    result = ask("clip", dict(task, clip_factor=0.02, eps=1e-3))
    for ours, grad, weight in zip(result["grads"], grads, weights):
        expected = clipped_adaptively(grad, weight, 0.02, 1e-3).flatten()
        torch.testing.assert_close(
            torch.tensor(ours, dtype=torch.float64),
            expected,
            rtol=precision,
            atol=2**-25,  # half an ulp of the smallest fp16 numbers
        )
    kept = torch.tensor(result["grads"][0], dtype=torch.float64).reshape(6, 4)[:3]
    assert torch.equal(kept, grads[0][:3].double())


@pytest.mark.parametrize("use_buffers", [False, True])
def test_moving_average_equals_averaged_model(ask, use_buffers):
    torch.manual_seed(2)
    module = torch.nn.BatchNorm1d(3)
    average = torch.optim.swa_utils.AveragedModel(
        module,
        multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8),
        use_buffers=use_buffers,
    )
    states = []
    for step in range(12):
        with torch.no_grad():
            for tensor in (module.weight, module.bias, module.running_mean):
                tensor.copy_(torch.randn(3))
            module.num_batches_tracked.fill_(10 * step + 3)
        average.update_parameters(module)
        state = {k: as_json(v) for k, v in module.state_dict().items()}
        states.append(dict(state, num_batches_tracked=10 * step + 3))
    ours = ask("ema", {"decay": 0.8, "use_buffers": use_buffers, "states": states})
    for name, values in ours.items():
        expected = average.module.state_dict()[name].double().flatten()
        assert torch.equal(torch.tensor(values, dtype=torch.float64), expected), name
