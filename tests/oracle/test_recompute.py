"""checkpoint() against torch.utils.checkpoint with use_reentrant=False: outputs,
gradients, the random numbers after it and how often each layer ran, to the last
bit."""

import functools
import itertools
import json

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from torch.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

REGIONS = ["off", "bf16", "fp16"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
MODES = ["plain", "each", "nested", "no_rng", "sequential", "selective"]
LAYERS = 4
SELECTIVE = functools.partial(
    create_selective_checkpoint_contexts,
    [torch.ops.aten.mm.default, torch.ops.aten.addmm.default],
)


def make_layer(weights, index, dropout, calls):
    w1, b1, w2 = (weights[f"{name}.{index % 3}"] for name in ("w1", "b1", "w2"))

    def layer(x):
        hidden = functional.gelu(functional.linear(x, w1, b1))
        hidden = functional.dropout(hidden, dropout, training=True)
        result = x + functional.linear(torch.softmax(hidden, -1), w2)
        calls[index] += 1
        return result

    return layer


def forward(mode, layers, x):
    if mode == "sequential":
        return checkpoint_sequential(layers, 2, x, use_reentrant=False)
    if mode == "nested":

        def pair(first, second):
            def both(x):
                x = checkpoint(first, x, use_reentrant=False)
                return checkpoint(second, x, use_reentrant=False)

            return both

        for i in range(0, LAYERS, 2):
            x = checkpoint(pair(layers[i], layers[i + 1]), x, use_reentrant=False)
        return x
    contexts = SELECTIVE if mode == "selective" else noop_context_fn
    for layer in layers:
        if mode == "plain":
            x = layer(x)
        else:
            x = checkpoint(
                layer,
                x,
                use_reentrant=False,
                preserve_rng_state=mode != "no_rng",
                context_fn=contexts,
            )
    return x


def run_in_python(case, tensors):
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}
    calls = [0] * LAYERS
    layers = [make_layer(leaves, i, case["dropout"], calls) for i in range(LAYERS)]
    torch.manual_seed(case["seed"])
    dtype = DTYPES.get(case["region"], torch.bfloat16)
    # Python's selective mode fails where a cast of forward came from the cache and
    # that of the recomputation can't.
    cached = case["mode"] != "selective"
    with torch.autocast(
        "cpu", dtype, enabled=case["region"] != "off", cache_enabled=cached
    ):
        y = forward(case["mode"], layers, leaves["x"])
    y.float().square().sum().backward()
    results = {name: leaf.grad for name, leaf in leaves.items()}
    return results | {"y": y.detach(), "random": torch.rand(4)}, calls


def test_every_mode_gives_the_bits_of_torch(driver, tmp_path):
    keys = ("region", "dropout", "mode", "seed")
    values = (REGIONS, [0.0, 0.25], MODES, [1, 2])
    cases = [dict(zip(keys, combination)) for combination in itertools.product(*values)]
    generator = torch.Generator().manual_seed(5)
    shapes = {"x": (6, 16)}
    for i in range(3):  # layers 0 and 3 are one
        shapes |= {f"w1.{i}": (24, 16), f"b1.{i}": (24,), f"w2.{i}": (16, 24)}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(tensors, tmp_path / "in.safetensors")
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    driver("recompute", tmp_path)
    all_calls = json.loads((tmp_path / "out.json").read_text())
    ours = load_file(tmp_path / "out.safetensors")
    assert len(all_calls) == len(cases) == 72
    plain = {}
    for index, case in enumerate(cases):
        expected, calls = run_in_python(case, tensors)
        assert all_calls[index] == calls, case
        same = case | {"mode": ""}
        if case["mode"] == "selective" and case["region"] != "off":
            # Without the cache, layers 0 and 3 have a cast each, and add up in fp32.
            expected = plain[str(same)]
        for name, value in expected.items():
            assert torch.equal(ours[f"{name}/{index}"], value), (case, name)
        # What the mode promises: the gradients of the plain run.
        if case["mode"] == "plain":
            plain[str(same)] = expected
        elif case["mode"] != "no_rng" or case["dropout"] == 0:
            for name, value in plain[str(same)].items():
                assert torch.equal(ours[f"{name}/{index}"], value), (case, name)
        else:
            assert not torch.equal(ours[f"x/{index}"], plain[str(same)]["x"]), case
