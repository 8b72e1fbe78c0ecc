"""Shared by the tests of whole programs."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("AMPKIT_BUILD_DIR", ROOT / "build" / "release"))


@pytest.fixture(scope="session")
def root():
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def build():
    """The build folder under test."""
    return BUILD


@pytest.fixture(scope="session")
def run():
    """Runs a command; gives the finished process, with its text output.

    Fails with what the command printed unless it exits with `status` (None:
    any).
    """

    def run_command(command, status=0, **options):
        options.setdefault("timeout", 600)
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        if status is not None:
            shown = " ".join(map(str, command))[:300]
            assert done.returncode == status, f"{shown}\n{done.stdout}"
        return done

    return run_command


@pytest.fixture
def long_run():
    """Whether the large counts were asked for (scripts/test.sh --long)."""
    return os.environ.get("AMPKIT_TEST_LONG") == "1"
