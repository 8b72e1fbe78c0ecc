"""A run of two processes that was stopped and resumed is the run that it was."""

import pytest
from launched import program  # noqa: F401


@pytest.fixture
def train(build, program, run, tmp_path):
    """Two ranks train until they have so many steps; gives their checkpoints."""
    rank = build / "tests" / "dist" / "resumable_rank"

    def start(name, steps):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        run([program, "run", "--nproc-per-node", 2, "--", rank, folder, steps])
        return [(folder / f"rank-{rank}").read_bytes() for rank in range(2)]

    return start


def test_resumed_run_of_two_processes_ends_in_the_same_bits(train):
    whole = train("whole", 11)
    assert whole[0] != whole[1]  # each has its own random numbers
    stopped = train("stopped", 5)
    assert stopped != whole
    assert train("stopped", 11) == whole
