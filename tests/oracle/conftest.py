"""Shared by the oracle tests: real PyTorch on one side, ampkit on the other."""

import os
import pathlib
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("AMPKIT_BUILD_DIR", ROOT / "build" / "release"))


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in one order: the driver sets one thread too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def driver():
    """Runs `oracle_driver COMMAND ARGUMENTS...`; fails with its message."""
    program = BUILD / "tests" / "oracle" / "driver" / "oracle_driver"

    def run(command, *arguments):
        done = subprocess.run(
            [program, command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def long_run():
    """Whether the large counts were asked for (scripts/test.sh --long)."""
    return os.environ.get("AMPKIT_TEST_LONG") == "1"
