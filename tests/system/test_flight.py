"""ampkit run shows the last steps of a rank that died."""

import os
import pathlib
import re

import pytest
from launched import program  # noqa: F401


@pytest.fixture(scope="module")
def probe(build):
    return build / "tests" / "diagnose" / "flight_probe"


def died(run, program, probe, folder, **options):  # noqa: F811
    command = [program, "run", "--nproc-per-node", 2, "--", probe, folder, 1]
    return run(command, status=128 + 9, **options).stdout


def test_last_steps_of_a_killed_rank_are_shown(run, program, probe, tmp_path):  # noqa: F811
    text = died(run, program, probe, tmp_path)
    assert re.search(r"rank 1 \(process \d+\) was killed by signal 9", text)
    assert re.search(
        r"flight recorder of rank 1 \(process \d+ on \S+\), 40 steps recorded; "
        r"last seen in step 41, backward, at \d{4}-",
        text,
    )
    assert re.search(r"^ +40 +0\.025 ", text, re.M)
    assert f"all of it: {tmp_path / 'flight-1.bin'}" in text
    # The file itself is the rank's, and still there.
    assert (tmp_path / "flight-1.bin").stat().st_size > 40 * 256


def test_folder_of_the_launcher_is_gone_at_the_end(run, program, probe, tmp_path):  # noqa: F811
    there = tmp_path / "tmp"
    there.mkdir()
    died(run, program, probe, tmp_path, env=os.environ | {"TMPDIR": str(there)})
    assert list(there.iterdir()) == []


def test_folder_that_is_given_is_used_and_stays(run, program, probe, tmp_path):  # noqa: F811
    links = tmp_path / "links"
    links.mkdir()
    text = died(
        run, program, probe, tmp_path, env=os.environ | {"AMPKIT_FLIGHT_DIR": str(links)}
    )
    assert "flight recorder of rank 1" in text
    assert pathlib.Path(links / "rank-1.flight").resolve() == tmp_path / "flight-1.bin"


def test_rank_without_a_recorder_is_reported_as_before(run, program):  # noqa: F811
    command = [program, "run", "--nproc-per-node", 1, "--", "bash", "-c", "exit 7"]
    assert "flight" not in run(command, status=7).stdout
