"""The residual networks against the same architecture written in Python.

torchvision is not among the packages of the tests, so its ResNet is written
down here once more: modules registered and constructed in its order, with its
initialisation. Parameter counts are those of torchvision's documentation.
"""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, kernel, stride):
    padding = kernel // 2
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, width, stride, downsample, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if bottleneck
            else [(inputs, width, 3, stride), (width, width, 3, 1)]
        )
        for number, shape in enumerate(shapes, 1):
            self.add_module(f"conv{number}", conv(*shape))
            self.add_module(f"bn{number}", nn.BatchNorm2d(shape[1]))
        self.depth = len(shapes)
        self.downsample = downsample

    def forward(self, x):
        y = x
        for number in range(1, self.depth + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            if number < self.depth:
                y = F.relu(y, inplace=True)
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, width, stem, in_channels, num_classes):
        super().__init__()
        kernel, stride, self.max_pool = stem
        self.conv1 = conv(in_channels, width, kernel, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = len(blocks)
        channels = width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                outputs = (width << stage) * (4 if bottleneck else 1)
                downsample = None
                if stride != 1 or channels != outputs:
                    downsample = nn.Sequential(
                        conv(channels, outputs, 1, stride), nn.BatchNorm2d(outputs)
                    )
                layers.append(
                    Block(channels, width << stage, stride, downsample, bottleneck)
                )
                channels = outputs
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu"
                )

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        if self.max_pool:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


STEMS = {"imagenet": (7, 2, True), "small": (3, 1, False)}
SHAPES = {
    "resnet18": ([2, 2, 2, 2], False, 64),
    "resnet34": ([3, 4, 6, 3], False, 64),
    "resnet50": ([3, 4, 6, 3], True, 64),
    "resnet_small": ([1, 1, 1], False, 32),
}
PUBLISHED_COUNTS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
}


def python_model(options):
    name = options["name"]
    stem = (3, 2, False) if name == "resnet_small" else STEMS[options["stem"]]
    torch.manual_seed(options["seed"])
    return ResNet(
        *SHAPES[name], stem, options["in_channels"], options["num_classes"]
    )


@pytest.fixture
def options_file(tmp_path):
    def write(**options):
        path = tmp_path / "options.json"
        path.write_text(json.dumps(options))
        return path

    return write


def make_options(name, stem="imagenet", in_channels=3, num_classes=1000):
    return dict(
        name=name, stem=stem, in_channels=in_channels, num_classes=num_classes, seed=7
    )


@pytest.mark.parametrize("name", SHAPES)
def test_same_names_in_the_same_order_and_same_initial_weights(
    name, driver, options_file, tmp_path
):
    options = make_options(name)
    output = tmp_path / "init.safetensors"
    driver("models_init", options_file(**options), output)
    expected = python_model(options).state_dict()
    with safe_open(output, "pt") as file:
        assert set(file.keys()) == set(expected)
        for key, value in expected.items():
            assert torch.equal(file.get_tensor(key), value), key
    order = json.loads(header_of(output))
    order.pop("__metadata__", None)
    assert list(order) == list(expected)
    if name in PUBLISHED_COUNTS:
        count = sum(p.numel() for p in python_model(options).parameters())
        assert count == PUBLISHED_COUNTS[name]


def header_of(path):
    data = path.read_bytes()
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


@pytest.mark.parametrize(
    ("name", "stem", "in_channels", "size"),
    [
        ("resnet18", "imagenet", 3, 64),
        ("resnet18", "small", 1, 28),
        ("resnet34", "small", 3, 32),
        ("resnet50", "imagenet", 3, 64),
        ("resnet_small", "small", 1, 28),
    ],
)
def test_same_outputs_gradients_and_statistics(
    name, stem, in_channels, size, driver, options_file, tmp_path
):
    options = make_options(name, stem, in_channels, num_classes=10)
    model = python_model(options)
    weights, batch = tmp_path / "weights.safetensors", tmp_path / "batch.safetensors"
    save_file(model.state_dict(), weights)
    x = torch.randn(4, in_channels, size, size)
    y = torch.randint(10, (4,))
    save_file({"x": x, "y": y}, batch)

    output = tmp_path / "output.safetensors"
    driver("models_run", options_file(**options), weights, batch, output)
    ours = load_file(output)

    logits = model(x)
    F.cross_entropy(logits, y).backward()
    expected = {"logits": logits.detach()}
    expected |= {f"grad.{n}": p.grad for n, p in model.named_parameters()}
    expected |= {f"buffer.{n}": b for n, b in model.named_buffers()}
    model.eval()
    expected["eval_logits"] = model(x).detach()
    assert set(ours) == set(expected)
    for key, value in expected.items():
        assert torch.equal(ours[key], value), key


def test_unknown_name_lists_the_known_ones(driver, options_file, tmp_path):
    with pytest.raises(AssertionError) as failure:
        driver(
            "models_init",
            options_file(**make_options("resnet19")),
            tmp_path / "none.safetensors",
        )
    assert "got 'resnet19'; known are resnet18, resnet34" in str(failure.value)
