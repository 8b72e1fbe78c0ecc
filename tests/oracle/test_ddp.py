"""DistributedDataParallel against Python's: two processes over Gloo on each side."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import torch
from ddp_ranks import RankNet
from safetensors.torch import load_file, save_file

from conftest import BUILD

RANKS = 2
STEPS = 5
ROWS = 24  # of all ranks, a step
PYTHON = [sys.executable, pathlib.Path(__file__).with_name("ddp_ranks.py")]
OURS = [BUILD / "tests" / "oracle" / "driver" / "oracle_driver", "ddp"]


def run_ranks(commands, folder, name):
    """Runs a command as each rank; gives what each of them wrote."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    ranks, results = [], []
    for rank, command in enumerate(commands):
        results.append(folder / f"{name}-{rank}.safetensors")
        env = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        arguments = [folder / "task.json", folder / "in.safetensors", results[-1]]
        ranks.append(
            subprocess.Popen(
                list(map(str, [*command, *arguments])),
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * len(ranks), "\n".join(texts)
    return [load_file(result) for result in results]


@pytest.fixture
def compare(tmp_path):
    def run(net, commands=(OURS,) * RANKS, **settings):
        task = {
            "net": net,
            "steps": STEPS,
            "bucket_bytes": 400,  # several buckets
            "views": False,
            "find_unused": False,
            "static_graph": False,
            "micro_batches": 1,
            **settings,
        }
        steps = task["steps"]
        torch.manual_seed(7)
        shape = (2, 4, 4) if net == "conv" else (8,)
        outputs = 8 if net == "tied" else 4
        tensors = {f"state.{n}": p.detach() for n, p in RankNet(net).named_parameters()}
        for tensor in tensors.values():
            tensor.normal_(std=0.3)
        tensors["input"] = torch.randn(steps, ROWS, *shape)
        tensors["target"] = torch.randn(steps, ROWS, outputs)
        save_file(tensors, tmp_path / "in.safetensors")
        (tmp_path / "task.json").write_text(json.dumps(task))
        expected = run_ranks([PYTHON] * RANKS, tmp_path, "python")
        ours = run_ranks(commands, tmp_path, "ours")
        for rank in range(RANKS):
            found = {k: v for k, v in ours[rank].items() if k != "state.second"}
            found.pop("grad.second", None)  # the tie: C++ lists both names
            assert found.keys() == expected[rank].keys()
            for name, tensor in expected[rank].items():
                assert torch.equal(found[name], tensor), (rank, name)
        weights = [{k: v for k, v in r.items() if "running" not in k} for r in ours]
        for name, tensor in weights[0].items():
            assert torch.equal(weights[1][name], tensor), name

    return run


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("net", ["norm", "conv", "tied"])
def test_same_bits_as_python(compare, net, views):
    compare(net, views=views)


@pytest.mark.slow
def test_same_bits_with_accumulation(compare):
    compare("norm", micro_batches=3, views=True)


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_same_bits_with_a_branch_that_some_ranks_use(compare, micro_batches):
    compare("branch", find_unused=True, micro_batches=micro_batches)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["norm", "conv"])
def test_same_bits_with_a_static_graph(compare, net):
    compare(net, static_graph=True)


@pytest.mark.slow
@pytest.mark.parametrize("commands", [(PYTHON, OURS), (OURS, PYTHON)])
@pytest.mark.parametrize("net", ["norm", "conv"])
def test_python_and_cpp_ranks_train_together(compare, commands, net):
    """In one job, over one Gloo group: the bits are those of two Python ranks."""
    compare(net, commands, steps=20, with_python=True)
