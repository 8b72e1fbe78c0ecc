"""What each module of a PyTorch model gives, in a safetensors file.

    from dump_activations import dump_activations
    dump_activations(model, (inputs,), "python.safetensors")

Names are the modules' paths; a module called again adds "#2". Only modules with
parameters of their own are kept, as ampkit's record_activations() does.

dump_activations.py FOLDER: the weights, the batch and the activations of the
small network of this example.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file


def dump_activations(model, inputs, path):
    activations = {}

    def hook(name):
        def keep(module, args, output):
            calls = sum(key.split("#")[0] == name for key in activations)
            key = name if calls == 0 else f"{name}#{calls + 1}"
            activations[key] = output.detach().cpu().contiguous().clone()

        return keep

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    with torch.no_grad():
        model(*inputs)
    for handle in handles:
        handle.remove()
    save_file(activations, path)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64),
        torch.nn.ReLU(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 1),
    )
    batch = torch.randn(32, 16)
    save_file(model.state_dict(), folder / "weights.safetensors")
    save_file({"batch": batch}, folder / "batch.safetensors")
    dump_activations(model, (batch,), folder / "python.safetensors")
