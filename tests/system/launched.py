"""Runs of `ampkit run` that tests watch: fixtures and helpers."""

import pathlib
import signal
import subprocess
import time

import pytest

LIMIT_S = 60


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture
def script(tmp_path):
    """Writes a shell script that each rank runs in tmp_path."""

    def write(text):
        path = tmp_path / "rank.sh"
        path.write_text(f"#!/bin/bash\ncd {tmp_path}\n{text}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def started(program):
    """Starts `ampkit run` and leaves it running; what is left is killed."""
    processes = []

    def use_default_signals():
        # In the background of a shell without job control, SIGINT is ignored,
        # and what is ignored stays so in the programs that are started.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def start(options, command, before_start=use_default_signals):
        process = subprocess.Popen(
            [str(word) for word in [program, "run", *options, "--", *command]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before_start,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def alive(process):
    """Whether it runs: a zombie does not."""
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1]
    except OSError:
        return False
    return state.split()[0] not in "ZX"


def wait_until(true, what):
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, f"waited too long until {what}"
        time.sleep(0.02)


def written(folder, pattern, count):
    """The numbers in files that ranks write, when all are there."""
    files = []

    def all_there():
        files[:] = sorted(folder.glob(pattern))
        return len(files) == count and all(path.read_text().strip() for path in files)

    wait_until(all_there, f"there are {count} {pattern}")
    return [int(path.read_text()) for path in files]
