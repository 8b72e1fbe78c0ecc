"""A Python state dict loads into the same C++ module, and comes back."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn


class Net(nn.Module):
    """The same as Net in driver/module_state.cpp."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Sequential(nn.Conv2d(4, 6, 3, bias=False), nn.GroupNorm(2, 6)),
        )
        self.lstm = nn.LSTM(6, 5)
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 2)
        self.offset = nn.Parameter(torch.randn(2))
        self.register_buffer("gain", torch.randn(2))

    def forward(self, image):
        sequence = self.stem(image).mean(3).permute(2, 0, 1)
        last = self.lstm(sequence)[0][-1]
        return (self.head(self.norm(last)) + self.offset) * self.gain


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def test_same_weights_give_the_same_output_and_the_same_state(driver, tmp_path, net):
    image = torch.randn(5, 3, 8, 8)
    save_file(net.state_dict(), tmp_path / "weights")
    save_file({"image": image}, tmp_path / "image")
    driver(
        "module_state",
        *(tmp_path / name for name in ("weights", "image", "output", "state")),
    )
    output = load_file(tmp_path / "output")
    # With gradients, as in the driver: without, some processors take another LSTM.
    assert torch.equal(output["training"], net(image))
    net.eval()
    assert torch.equal(output["evaluation"], net(image))
    # After one training step of the batch norm, on both sides.
    state = load_file(tmp_path / "state")
    assert set(state) == set(net.state_dict())
    back = Net()
    back.load_state_dict(state)
    for name, tensor in net.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name


def test_weights_that_a_wrapper_saved_load_under_the_names_of_the_module(
    driver, tmp_path, net
):
    """DataParallel puts "module." before each name."""
    image = torch.randn(5, 3, 8, 8)
    torch.save(nn.DataParallel(net).state_dict(), tmp_path / "weights.pt")
    save_file({"image": image}, tmp_path / "image")
    files = [tmp_path / name for name in ("weights.pt", "image", "output", "state")]
    driver("module_state", *files, "module.")
    assert torch.equal(load_file(tmp_path / "output")["training"], net(image))
    with pytest.raises(AssertionError) as error:
        driver("module_state", *files)
    assert 'replace_prefixes({{"module.", ""}})' in str(error.value)


def test_state_of_another_module_is_refused_by_name(driver, tmp_path, net):
    state = net.state_dict()
    del state["head.bias"]
    state["head.weight"] = torch.zeros(3, 5)
    state["tail.weight"] = torch.zeros(1)
    save_file(state, tmp_path / "weights")
    save_file({"image": torch.zeros(1, 3, 8, 8)}, tmp_path / "image")
    with pytest.raises(AssertionError) as error:
        driver("module_state", tmp_path / "weights", tmp_path / "image", "o", "s")
    for text in (
        "missing: head.bias",
        "mismatched: head.weight",
        "unexpected: tail.weight",
    ):
        assert text in str(error.value)
