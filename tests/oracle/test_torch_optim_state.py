"""A run begun in Python goes on in C++ from a file of torch.save, and back."""

import copy

import pytest
import torch
from torch import nn


def load(path):
    return torch.load(path, weights_only=True)


# Settings, and how far apart C++ and Python may be. 0: C++ takes the same kernel, or
# one of the same order of operations.
RUNS = {
    "adamw": ("AdamW", {"weight_decay": 0.03, "fused": True}, 0),
    "adamw-loop": ("AdamW", {"weight_decay": 0.03, "fused": False}, 1e-6),
    "adamw-amsgrad": (
        "AdamW",
        {"amsgrad": True, "betas": (0.8, 0.98), "fused": True},
        0,
    ),
    "adamw-maximize": ("AdamW", {"maximize": True, "fused": True}, 0),
    "adam-amsgrad": ("Adam", {"amsgrad": True, "fused": True}, 0),
    "adam": ("Adam", {"weight_decay": 0.03, "fused": True}, 0),
    "sgd": ("SGD", {"momentum": 0.9, "nesterov": True, "fused": True}, 0),
    "sgd-loop": ("SGD", {"momentum": 0.9, "dampening": 0.1, "fused": False}, 1e-6),
    "sgd-plain": ("SGD", {"fused": True}, 0),
    "adagrad": ("Adagrad", {"lr_decay": 0.1, "fused": True}, 0),
    "adagrad-start": ("Adagrad", {"initial_accumulator_value": 0.5, "fused": True}, 0),
    "rmsprop-plain": ("RMSprop", {"weight_decay": 0.03}, 0),
    "rmsprop": ("RMSprop", {"momentum": 0.5, "centered": True}, 0),
    "adafactor": ("Adafactor", {"weight_decay": 0.03}, 1e-6),
    "adafactor-eps": ("Adafactor", {"eps": (1e-6, 1e-3)}, 1e-6),
    # Its matrix products are in bf16 in Python. A lost buffer would cost 1e-2.
    "muon": ("Muon", {"adjust_lr_fn": "match_rms_adamw"}, 2e-3),
}


def make_run(kind, options, dtype=torch.float32):
    torch.manual_seed(3)
    bias = kind != "Muon"  # which takes matrices only
    model = nn.Sequential(nn.Linear(6, 8, bias), nn.Tanh(), nn.Linear(8, 3, bias))
    model.to(dtype)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.02, **options)
    return model, optimizer, torch.amp.GradScaler("cpu", init_scale=1024.0)


def batches(dtype=torch.float32):
    torch.manual_seed(4)
    return torch.randn(30, 5, 6, dtype=dtype), torch.randn(30, 5, 3, dtype=dtype)


def train(model, optimizer, scaler, x, y):
    for one, target in zip(x, y):
        optimizer.zero_grad()
        scaler.scale(nn.functional.mse_loss(model(one), target)).backward()
        scaler.step(optimizer)
        scaler.update()


def save_run(path, run, x, y):
    names = ("model", "optimizer", "scaler")
    state = {name: part.state_dict() for name, part in zip(names, run)}
    torch.save(state | {"x": x.clone(), "y": y.clone()}, path)


def load_run(path, run):
    state = load(path)
    for name, part in zip(("model", "optimizer", "scaler"), run):
        part.load_state_dict(state[name])


def assert_runs_agree(found, expected, error):
    tolerance = {"rtol": error, "atol": error}
    torch.testing.assert_close(
        found[0].state_dict(), expected[0].state_dict(), **tolerance
    )
    ours, theirs = (run[1].state_dict() for run in (found, expected))
    for index, state in theirs["state"].items():
        for name, value in state.items():
            if value is not None:
                torch.testing.assert_close(
                    ours["state"][index][name], value, **tolerance
                )
    for key, value in theirs["param_groups"][0].items():
        assert ours["param_groups"][0][key] == value, key
    assert found[2].state_dict() == expected[2].state_dict()


@pytest.mark.parametrize(("kind", "options", "error"), RUNS.values(), ids=RUNS)
def test_run_begun_in_python_goes_on_in_cpp_and_back(
    driver, tmp_path, kind, options, error
):
    x, y = batches()
    run = make_run(kind, options)
    train(*run, x[:10], y[:10])
    save_run(tmp_path / "python.pt", run, x[10:20], y[10:20])
    driver("torch_train", kind, tmp_path / "python.pt", tmp_path / "ampkit.pt")
    train(*run, x[10:20], y[10:20])
    back = make_run(kind, {})
    load_run(tmp_path / "ampkit.pt", back)
    if "fused" in options:
        back[1].param_groups[0]["fused"] = options["fused"]
    assert_runs_agree(back, run, error)
    train(*run, x[20:], y[20:])
    train(*back, x[20:], y[20:])
    assert_runs_agree(back, run, error)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_groups_with_options_of_their_own_go_on_in_cpp_and_back(
    driver, tmp_path, kind, named
):
    """In C++ the groups are in the order of the file, the parameters are not if
    their names are known."""
    x, y = batches()
    model, _, scaler = make_run(kind, {})
    names = [["0.weight", "2.weight"], ["0.bias", "2.bias"]]
    parameters = dict(model.named_parameters())

    def make_optimizer(parameters):
        groups = [
            {"params": [(n, parameters[n]) if named else parameters[n] for n in group]}
            | {"lr": lr, "weight_decay": decay}
            for group, lr, decay in zip(names, (0.02, 0.05), (0.03, 0.0))
        ]
        return getattr(torch.optim, kind)(groups, fused=True)

    run = (model, make_optimizer(parameters), scaler)
    train(*run, x[:10], y[:10])
    save_run(tmp_path / "python.pt", run, x[10:20], y[10:20])
    in_cpp = [group[::-1] if named else group for group in names]
    torch.save(load(tmp_path / "python.pt") | {"groups": in_cpp}, tmp_path / "python.pt")
    driver("torch_train", kind, tmp_path / "python.pt", tmp_path / "ampkit.pt")
    train(*run, x[10:20], y[10:20])
    state = load(tmp_path / "ampkit.pt")
    for name, tensor in model.state_dict().items():
        assert torch.equal(state["model"][name], tensor), name
    for ours, theirs in zip(
        state["optimizer"]["param_groups"], run[1].param_groups, strict=True
    ):
        for key in ("lr", "weight_decay"):
            assert ours[key] == theirs[key]
    if named:
        return  # its numbers are those of the order in C++
    other = make_run(kind, {})
    back = (other[0], make_optimizer(dict(other[0].named_parameters())), other[2])
    load_run(tmp_path / "ampkit.pt", back)
    for group in back[1].param_groups:
        group["fused"] = True
    for pair in (run, back):
        train(*pair, x[20:], y[20:])
    for name, tensor in model.state_dict().items():
        assert torch.equal(back[0].state_dict()[name], tensor), name


def test_masters_of_16_bit_parameters_pass_through_python(driver, tmp_path):
    x, y = (tensor / 8 for tensor in batches(torch.bfloat16))
    run = make_run("AdamW", {}, torch.bfloat16)
    run[2].load_state_dict(run[2].state_dict() | {"scale": 1.0})
    train(*run, x[:10], y[:10])
    save_run(tmp_path / "python.pt", run, x[10:20], y[10:20])
    driver("torch_train", "AdamW", tmp_path / "python.pt", tmp_path / "first.pt")
    first = load(tmp_path / "first.pt")
    state = first["optimizer"]["state"][0]
    assert state["master"].dtype == state["exp_avg"].dtype == torch.float32
    assert torch.equal(state["master"].bfloat16(), first["model"]["0.weight"])
    back = make_run("AdamW", {}, torch.bfloat16)
    load_run(tmp_path / "first.pt", back)
    train(*back, x[20:], y[20:])
    assert back[1].state_dict()["state"][0]["step"] == 30
    # And once more into C++, with masters that Python left behind.
    save_run(tmp_path / "back.pt", back, x[:5], y[:5])
    driver("torch_train", "AdamW", tmp_path / "back.pt", tmp_path / "second.pt")
    second = load(tmp_path / "second.pt")
    state = second["optimizer"]["state"][0]
    assert state["step"] == 35
    assert torch.equal(state["master"].bfloat16(), second["model"]["0.weight"])


def change(state, *path, value):
    state = copy.deepcopy(state)
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return state


@pytest.mark.parametrize(
    "path, value, text",
    [
        (("param_groups", 0, "decoupled_weight_decay"), False, "does not support"),
        (("param_groups", 0, "amsgrad"), None, "'amsgrad': TorchValue: should be"),
        (("param_groups", 0, "momentum"), 0.9, "'momentum' is unknown here"),
        (("param_groups", 0, "lr"), "fast", "should be a number"),
        (("param_groups", 0, "params"), [0, 1, 2], "has 3 parameters"),
        (("param_groups",), [], "0 parameter groups"),
        (("state", 0, "exp_avg"), torch.zeros(2, 2), "0.weight.exp_avg"),
        (("state", 0, "step"), 1.5, "whole number"),
        (("state", 0, "shadow"), torch.zeros(8, 6), "0.weight.shadow"),
    ],
    ids=lambda value: None if isinstance(value, (torch.Tensor, list)) else str(value),
)
def test_optimizer_state_that_does_not_fit_is_named(
    driver, tmp_path, path, value, text
):
    x, y = batches()
    run = make_run("AdamW", {})
    train(*run, x[:2], y[:2])
    save_run(tmp_path / "good.pt", run, x, y)
    state = load(tmp_path / "good.pt")
    state["optimizer"] = change(state["optimizer"], *path, value=value)
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(AssertionError) as error:
        driver("torch_train", "AdamW", tmp_path / "bad.pt", tmp_path / "out.pt")
    assert text in str(error.value)


def test_state_of_another_optimizer_is_refused(driver, tmp_path):
    x, y = batches()
    run = make_run("SGD", {})
    train(*run, x[:2], y[:2])
    save_run(tmp_path / "sgd.pt", run, x, y)
    with pytest.raises(AssertionError, match="'betas.first' is missing"):
        driver("torch_train", "AdamW", tmp_path / "sgd.pt", tmp_path / "out.pt")
