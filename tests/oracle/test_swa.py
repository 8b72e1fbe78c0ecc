"""Equal averages and update_bn against torch.optim.swa_utils, to the last bit."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import AveragedModel, update_bn

STEPS = 14


@pytest.fixture
def compare(driver, tmp_path):
    def run(dtype=torch.float32, use_buffers=False, batches=0):
        torch.manual_seed(4)
        module = torch.nn.Sequential(
            torch.nn.Linear(3, 4),
            torch.nn.BatchNorm1d(4, momentum=0.3),
            torch.nn.Linear(4, 2),
            torch.nn.BatchNorm1d(2),
        ).to(dtype)
        average = AveragedModel(module, use_buffers=use_buffers)
        data = [torch.randn(16, 3, dtype=dtype) for _ in range(batches)]
        tensors = {f"batch.{i}": batch for i, batch in enumerate(data)}
        for step in range(STEPS):
            for name, tensor in module.state_dict().items():
                if tensor.is_floating_point():
                    tensor.copy_(torch.randn_like(tensor))
                else:
                    tensor.fill_((17 * step) % 40)
                tensors[f"state.{step}.{name}"] = tensor.clone()
            average.update_parameters(module)
        if data:
            update_bn(data, average)
        task = {
            "steps": STEPS,
            "double": dtype == torch.float64,
            "use_buffers": use_buffers,
            "batches": batches,
        }
        source, settings = tmp_path / "in.safetensors", tmp_path / "task.json"
        result = tmp_path / "out.safetensors"
        save_file(tensors, source)
        settings.write_text(json.dumps(task))
        driver("swa", settings, source, result)
        ours, expected = load_file(result), average.module.state_dict()
        assert ours.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(ours[name], tensor), name

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("use_buffers", [False, True])
def test_equal_averages(compare, dtype, use_buffers):
    compare(dtype, use_buffers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batches", [1, 7])
def test_statistics_of_the_averages(compare, dtype, batches):
    compare(dtype, batches=batches)


def test_statistics_after_averaged_buffers(compare):
    compare(use_buffers=True, batches=5)
