"""ampkit run: the signals that it passes on to its ranks."""

import signal
import time

import pytest
from launched import alive, program, script, started, written  # noqa: F401


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_is_passed_on_and_ranks_may_save(started, script, tmp_path, number):
    save = script(
        """
        trap 'sleep 0.5; echo saved > saved-$RANK; exit 130' INT TERM
        echo $$ > pid-$RANK
        while true; do sleep 0.05; done
        """
    )
    launcher = started(["--nproc-per-node", 2, "--max-restarts", 3], [save])
    processes = written(tmp_path, "pid-*", 2)
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == 130
    assert len(list(tmp_path.glob("saved-*"))) == 2
    assert "error" not in errors
    assert not any(map(alive, processes))


def test_interrupted_ranks_that_do_not_end_are_killed(started, script, tmp_path):
    stubborn = script(
        "trap '' INT; echo $$ > pid-$RANK; while true; do sleep 0.1; done"
    )
    launcher = started(["--nproc-per-node", 2, "--grace-period", 1], [stubborn])
    written(tmp_path, "pid-*", 2)
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=20)
    assert launcher.returncode == 128 + signal.SIGKILL


def test_user_signals_are_passed_on(started, script, tmp_path):
    script_text = "trap 'echo got; exit 0' USR1; echo $$ > pid-$RANK; while true; do sleep 0.05; done"
    launcher = started(["--nproc-per-node", 2], [script(script_text)])
    written(tmp_path, "pid-*", 2)
    launcher.send_signal(signal.SIGUSR1)
    output, _ = launcher.communicate(timeout=20)
    assert launcher.returncode == 0
    assert sorted(output.split("\n")) == ["", "[rank 0] got", "[rank 1] got"]


def test_ignored_hangup_stays_ignored_as_under_nohup(started, script, tmp_path):
    wait = script("echo $$ > pid-$RANK; until [ -e go ]; do sleep 0.05; done")

    def ignore_hangup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    # Taken for an interruption, it would have the ranks killed at once.
    options = ["--nproc-per-node", 2, "--grace-period", 0.1]
    launcher = started(options, [wait], before_start=ignore_hangup)
    processes = written(tmp_path, "pid-*", 2)
    launcher.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert all(map(alive, processes))
    (tmp_path / "go").touch()
    launcher.communicate(timeout=20)
    assert launcher.returncode == 0
