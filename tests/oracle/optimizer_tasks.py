"""Settings of the optimizers under test, tasks for the driver, and what Python
makes of them: torch.optim where it has the optimizer, else the paper's formulas
in torch ops."""

import torch

STEPS = 50
SHAPES = [[(7, 5), (13,)], [(3, 4, 2), (1,)]]  # two groups
MATRICES = [[(7, 5), (6, 6)], [(4, 9)]]  # Muon takes no others
# Adafactor's own kernel is for matrices of 16 columns and more.
WIDE = [[(7, 19), (13,)], [(3, 4, 2), (5, 40)]]

# Each case: the optimizer and the options of its two groups.
CASES = {
    "adam": (
        "Adam",
        [
            dict(lr=3e-3, weight_decay=1e-2),
            dict(lr=1e-2, betas=(0.8, 0.99), eps=1e-6, amsgrad=True, maximize=True),
        ],
    ),
    "adamw": (
        "AdamW",
        [
            dict(lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2),
            dict(lr=1e-2, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.0),
        ],
    ),
    "adamw-amsgrad": (
        "AdamW",
        [dict(lr=3e-3, amsgrad=True), dict(lr=1e-2, maximize=True)],
    ),
    "sgd-plain": ("SGD", [dict(lr=0.1), dict(lr=0.01, weight_decay=0.1)]),
    "sgd-momentum": (
        "SGD",
        [
            dict(lr=0.1, momentum=0.9, weight_decay=1e-3),
            dict(lr=0.05, momentum=0.5, dampening=0.3, maximize=True),
        ],
    ),
    "sgd-nesterov": (
        "SGD",
        [
            dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
            dict(lr=0.01, momentum=0.95, nesterov=True),
        ],
    ),
    "adagrad": (
        "Adagrad",
        [
            dict(lr=0.05, lr_decay=0.01, weight_decay=1e-2),
            dict(lr=0.02, initial_accumulator_value=0.3, eps=1e-6, maximize=True),
        ],
    ),
    "rmsprop": (
        "RMSprop",
        [
            dict(lr=1e-3, weight_decay=1e-2),
            dict(lr=2e-3, alpha=0.9, centered=True, eps=1e-4, maximize=True),
        ],
    ),
    "rmsprop-momentum": (
        "RMSprop",
        [
            dict(lr=1e-3, momentum=0.9),
            dict(lr=1e-3, momentum=0.5, centered=True, eps=1e-4),
        ],
    ),
    "lion": (
        "Lion",
        [
            dict(lr=1e-3, weight_decay=0.1),
            dict(lr=3e-3, betas=(0.8, 0.95), maximize=True),
        ],
    ),
    "lamb": (
        "LAMB",
        [
            dict(lr=3e-3, weight_decay=0.01),
            dict(lr=1e-2, betas=(0.8, 0.99), weight_decay=0.0, maximize=True),
        ],
    ),
    "lamb-uncorrected": (
        "LAMB",
        [dict(lr=3e-3, bias_correction=False), dict(lr=1e-2, eps=1e-3)],
    ),
    "adafactor": (
        "Adafactor",
        [
            dict(lr=1e-2, weight_decay=0.01),
            dict(lr=0.3, beta2_decay=-0.5, eps=(1e-4, 1e-2), d=1.5, maximize=True),
        ],
    ),
}
MUON = [
    dict(lr=0.02, weight_decay=0.1),
    dict(
        lr=1e-2,
        momentum=0.8,
        nesterov=False,
        ns_steps=4,
        adjust_lr_fn="match_rms_adamw",
    ),
]
# LibTorch has one op for a step of these.
FUSED = {"Adam", "AdamW", "SGD", "Adagrad"}


def as_json(tensor):
    return {"shape": list(tensor.shape), "values": tensor.double().flatten().tolist()}


def tensor_of(value, dtype):
    values = torch.tensor(value["values"], dtype=torch.float64)
    return values.to(dtype).reshape(value["shape"])


def make_task(kind, options, kernel, dtype=torch.float32, shapes=SHAPES, **extras):
    """Weights, and for each step learning rates and gradients; now and then a
    parameter has none."""
    torch.manual_seed(0)
    if kind == "Adafactor":
        shapes = WIDE
        kernel = "automatic" if kernel == "highway" else kernel
    groups = [
        {
            "options": group,
            "params": [as_json(torch.randn(shape).to(dtype)) for shape in in_group],
        }
        for in_group, group in zip(shapes, options)
    ]
    steps = []
    for i in range(STEPS):
        grads = [torch.randn(shape) for in_group in shapes for shape in in_group]
        grads = [as_json(g.to(dtype)) for g in grads]
        if i % 7 == 3:
            grads[1] = None
        lrs = [g["options"]["lr"] * (1 + 0.5 * (i % 5)) for g in groups]
        steps.append({"lrs": lrs, "grads": grads, **extras})
    name = str(dtype).removeprefix("torch.")
    return {
        "kind": kind,
        "kernel": kernel,
        "dtype": name,
        "groups": groups,
        "steps": steps,
    }


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023, algorithm 2, in the order of its authors' own
    implementation (google/automl)."""

    def __init__(
        self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False
    ):
        super().__init__(
            params,
            dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize),
        )

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = -p.grad if group["maximize"] else p.grad
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = m * beta1 + g * (1 - beta1)
                p.add_(torch.sign(update), alpha=-group["lr"])
                m.mul_(beta2).add_(g, alpha=1 - beta2)


class LAMB(torch.optim.Optimizer):
    """You et al., 2020, algorithm 2, phi the identity."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.01,
        bias_correction=True,
        maximize=False,
    ):
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                bias_correction=bias_correction,
                maximize=maximize,
            ),
        )

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = -p.grad if group["maximize"] else p.grad
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
                v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
                if group["bias_correction"]:
                    m, v = m / (1 - beta1**t), v / (1 - beta2**t)
                r = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                weight, length = p.norm(), r.norm()
                ratio = weight / length if weight > 0 and length > 0 else 1.0
                p -= group["lr"] * ratio * r


def make_python_optimizer(kind, groups, fused):
    if kind in ("Lion", "LAMB"):
        return {"Lion": Lion, "LAMB": LAMB}[kind](groups)
    make = getattr(torch.optim, kind)
    if kind in FUSED and fused:
        optimizer = make(groups, fused=True)
    else:
        optimizer = make(groups) if kind == "Muon" else make(groups, foreach=False)
    if kind == "Adagrad":
        # Python takes the value of the constructor for all groups.
        for group in optimizer.param_groups:
            for p in group["params"]:
                optimizer.state[p]["sum"].fill_(group["initial_accumulator_value"])
    return optimizer


def run_python(task, dtype, fused, cast=torch.float32):
    """The weights after each step, of a run in `dtype`; values pass through
    `cast` first, as they do on the other side."""
    groups, parameters = [], []
    for group in task["groups"]:
        values = [tensor_of(p, cast).to(dtype) for p in group["params"]]
        params = [torch.nn.Parameter(v) for v in values]
        parameters += params
        groups.append({"params": params, **group["options"]})
    optimizer = make_python_optimizer(task["kind"], groups, fused)
    history = []
    for step in task["steps"]:
        for group, lr in zip(optimizer.param_groups, step["lrs"]):
            group["lr"] = lr
        for p, grad in zip(parameters, step["grads"]):
            p.grad = None if grad is None else tensor_of(grad, cast).to(dtype)
        if "max_norm" in step:
            torch.nn.utils.clip_grad_norm_(parameters, step["max_norm"])
        if step.get("found_inf"):
            continue
        if "divisor" in step:
            if fused and task["kind"] in ("Adam", "AdamW", "SGD"):
                optimizer.grad_scale = torch.tensor(step["divisor"])
                optimizer.found_inf = torch.tensor(0.0)
            else:
                for p in parameters:
                    if p.grad is not None:
                        p.grad /= step["divisor"]
        optimizer.step()
        history.append([p.detach().double().flatten().clone() for p in parameters])
    return history


def weights_of(result):
    return [
        [torch.tensor(w, dtype=torch.float64) for w in step]
        for step in result["weights"]
    ]


def largest_error(history, reference):
    assert len(history) == len(reference) > 0
    return max(
        (a - b).abs().max().item()
        for ours, theirs in zip(history, reference)
        for a, b in zip(ours, theirs)
    )
