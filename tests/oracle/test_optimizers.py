"""AdamW, SGD, clipping and averaging against torch.optim and torch.nn.utils."""

import copy
import json

import pytest
import torch

STEPS = 50
SHAPES = [[(7, 5), (13,)], [(3, 4, 2), (1,)]]  # two groups

ADAMW = [
    dict(lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2),
    dict(lr=1e-2, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.0),
]
SGD = {
    "plain": [dict(lr=0.1), dict(lr=0.01, weight_decay=0.1)],
    "momentum": [
        dict(lr=0.1, momentum=0.9, weight_decay=1e-3),
        dict(lr=0.05, momentum=0.5, dampening=0.3),
    ],
    "nesterov": [
        dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
        dict(lr=0.01, momentum=0.95, nesterov=True),
    ],
}
SGD_DEFAULTS = dict(momentum=0, dampening=0, weight_decay=0, nesterov=False)


def as_json(tensor):
    return {"shape": list(tensor.shape), "values": tensor.double().flatten().tolist()}


def make_task(kind, options, kernel, dtype=torch.float32, **extras):
    """Weights, and for each step learning rates and gradients; now and then a
    parameter has none."""
    torch.manual_seed(0)
    groups = []
    for shapes, group in zip(SHAPES, options):
        full = {**SGD_DEFAULTS, **group} if kind == "SGD" else group
        params = [as_json(torch.randn(shape).to(dtype)) for shape in shapes]
        groups.append({"options": full, "params": params})
    steps = []
    for i in range(STEPS):
        grads = [torch.randn(shape) for shapes in SHAPES for shape in shapes]
        grads = [as_json(g.to(dtype)) for g in grads]
        if i % 7 == 3:
            grads[1] = None
        lrs = [g["options"]["lr"] * (1 + 0.5 * (i % 5)) for g in groups]
        steps.append({"lrs": lrs, "grads": grads, **extras})
    name = str(dtype).removeprefix("torch.")
    return {"kind": kind, "kernel": kernel, "dtype": name, "groups": groups, "steps": steps}


def tensor_of(value, dtype):
    return torch.tensor(value["values"], dtype=torch.float64).to(dtype).reshape(value["shape"])


def run_torch(task, dtype, fused, cast=torch.float32):
    """What torch.optim makes of `task` in `dtype`; values pass through `cast`
    first, as they do on the other side."""
    groups, parameters = [], []
    for group in task["groups"]:
        values = [tensor_of(p, cast).to(dtype) for p in group["params"]]
        params = [torch.nn.Parameter(v) for v in values]
        parameters += params
        groups.append({"params": params, **group["options"]})
    make = torch.optim.AdamW if task["kind"] == "AdamW" else torch.optim.SGD
    optimizer = make(groups, fused=fused, foreach=None if fused else False)
    history = []
    for step in task["steps"]:
        for group, lr in zip(optimizer.param_groups, step["lrs"]):
            group["lr"] = lr
        for p, grad in zip(parameters, step["grads"]):
            p.grad = None if grad is None else tensor_of(grad, cast).to(dtype)
        if "max_norm" in step:
            torch.nn.utils.clip_grad_norm_(parameters, step["max_norm"])
        if "divisor" in step:
            if fused:
                optimizer.grad_scale = torch.tensor(step["divisor"])
                optimizer.found_inf = torch.tensor(step["found_inf"])
            elif step["found_inf"]:
                continue
            else:
                for p in parameters:
                    if p.grad is not None:
                        p.grad /= step["divisor"]
        optimizer.step()
        history.append([p.detach().double().flatten().clone() for p in parameters])
    return history


@pytest.fixture
def ask(driver, tmp_path):
    def run(command, task):
        source, result = tmp_path / "task.json", tmp_path / "result.json"
        source.write_text(json.dumps(task))
        driver(command, source, result)
        return json.loads(result.read_text())

    return run


def weights_of(result):
    return [[torch.tensor(w, dtype=torch.float64) for w in step] for step in result["weights"]]


def largest_error(history, reference):
    return max(
        (a - b).abs().max().item()
        for ours, theirs in zip(history, reference)
        for a, b in zip(ours, theirs)
    )


CASES = [("AdamW", ADAMW)] + [("SGD", options) for options in SGD.values()]
CASE_NAMES = ["adamw"] + [f"sgd-{name}" for name in SGD]
EXTRAS = [{}, {"divisor": 1024.0, "found_inf": 0.0}, {"divisor": 3.7, "found_inf": 0.0}]


@pytest.mark.parametrize("extras", EXTRAS, ids=["plain", "scaled", "scaled-odd"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=CASE_NAMES)
def test_stock_kernel_equals_fused_torch_to_the_last_bit(ask, kind, options, extras):
    task = make_task(kind, options, "stock", **extras)
    ours = weights_of(ask("optimizer", task))
    theirs = run_torch(task, torch.float32, fused=True)
    assert len(ours) == len(theirs) == STEPS
    for a, b in zip(ours, theirs):
        for x, y in zip(a, b):
            assert torch.equal(x, y)


@pytest.mark.parametrize("extras", EXTRAS, ids=["plain", "scaled", "scaled-odd"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=CASE_NAMES)
def test_own_kernel_is_as_near_to_fp64_as_torch_is(ask, kind, options, extras):
    task = make_task(kind, options, "highway", **extras)
    ours = weights_of(ask("optimizer", task))
    exact = run_torch(task, torch.float64, fused=False)
    theirs = run_torch(task, torch.float32, fused=True)
    # Both round each weight once a step, by half an ulp: 2^-24 of its size,
    # which stays below 8. The sum over the steps bounds what an honest fp32
    # kernel may lose; torch's own error is the practical measure.
    bound = STEPS * 8 * 2**-24
    assert largest_error(ours, exact) < bound
    assert largest_error(ours, exact) < 2 * largest_error(theirs, exact) + 1e-7
    assert largest_error(ours, theirs) < bound


@pytest.mark.parametrize("kernel", ["stock", "highway"])
def test_skipped_steps_change_nothing(ask, kernel):
    task = make_task("AdamW", ADAMW, kernel)
    for i, step in enumerate(task["steps"]):
        step.update(divisor=2.0, found_inf=float(i % 3 == 1) * 2)
    kept = copy.deepcopy(task)
    kept["steps"] = [s for s in kept["steps"] if s["found_inf"] == 0]
    assert 0 < len(kept["steps"]) < STEPS
    ours = weights_of(ask("optimizer", task))[-1]
    theirs = run_torch(kept, torch.float32, fused=True)[-1]
    for a, b in zip(ours, theirs):
        if kernel == "stock":
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b, rtol=0, atol=STEPS * 8 * 2**-24)


@pytest.mark.parametrize("kernel", ["stock", "highway"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=CASE_NAMES)
def test_clipped_steps(ask, kernel, kind, options):
    task = make_task(kind, options, kernel, max_norm=1.5)
    ours = weights_of(ask("optimizer", task))
    theirs = run_torch(task, torch.float32, fused=True)
    # The norm is summed in fp64 here and in fp32 there: the factor differs by
    # some 2^-23, and so does each step, whose sum stays below 8.
    assert largest_error(ours, theirs) < STEPS * 8 * 2**-23


@pytest.mark.parametrize("kernel", ["stock", "highway"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=CASE_NAMES)
def test_16_bit_parameters_follow_an_fp32_run(ask, kernel, dtype, kind, options):
    task = make_task(kind, options, kernel, dtype)
    result = ask("optimizer", task)
    reference = run_torch(task, torch.float32, fused=True, cast=dtype)
    masters = [torch.tensor(m, dtype=torch.float64) for m in result["masters"]]
    for master, weight, expected in zip(masters, weights_of(result)[-1], reference[-1]):
        if kernel == "stock":
            assert torch.equal(master, expected)
        else:
            torch.testing.assert_close(master, expected, rtol=0, atol=STEPS * 8 * 2**-24)
        assert torch.equal(weight, master.float().to(dtype).double())


@pytest.mark.parametrize("kernel", ["stock", "highway"])
def test_small_updates_of_bf16_weights_add_up(ask, kernel):
    """lr 6e-4 on ones: each step alone is below half a bf16 ulp."""
    ones, grads = torch.ones(64), torch.rand(100, 64) + 0.5
    group = {"options": dict(ADAMW[0], lr=6e-4), "params": [as_json(ones)]}
    steps = [{"lrs": [6e-4], "grads": [as_json(g.bfloat16())]} for g in grads]
    task = {"kind": "AdamW", "kernel": kernel, "dtype": "bfloat16", "groups": [group], "steps": steps}
    last = weights_of(ask("optimizer", task))[-1][0]
    expected = run_torch(task, torch.float32, fused=True, cast=torch.bfloat16)[-1][0]
    ulp = 2**-8  # of numbers in [0.5, 1)
    assert (expected < 0.96).all()
    assert (last - expected).abs().max() <= ulp / 2 + 1e-6


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, "inf"])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(ask, norm_type, max_norm):
    torch.manual_seed(1)
    grads = [torch.randn(40, 3), torch.randn(7)]
    task = {"dtype": "float32", "grads": [as_json(g) for g in grads]}
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
    task = {"dtype": "float32", "grads": [as_json(grad)], "clip_value": 0.3}
    parameter = torch.nn.Parameter(torch.zeros(50))
    parameter.grad = grad.clone()
    torch.nn.utils.clip_grad_value_([parameter], 0.3)
    ours = torch.tensor(ask("clip", task)["grads"][0])
    assert torch.equal(ours, parameter.grad)


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
