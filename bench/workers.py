"""The processes that a benchmark compares, and the conversation with them.

A worker sets itself up, writes `ready`, and then answers one line of JSON to
each line that it reads: `check` trains its first steps and gives the numbers
that both sides must agree on, `run` does one repetition and gives its seconds
per unit of work. Between the lines it sleeps, so that two warm workers can be
timed in turn. Warnings go to standard error, which is shown if a worker fails.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time


class WorkerError(Exception):
    """A worker that ended or answered something else than was asked."""


def launch(command, environment, log):
    program = pathlib.Path(command[0])
    if not program.exists():
        raise WorkerError(
            f"{program} is missing; build it with `cmake --preset release && "
            "cmake --build build/release`"
        )
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, **environment},
    )


class Worker:
    """A process that stays warm and repeats its work on request."""

    def __init__(self, command, environment):
        self.command = command
        self._log = tempfile.TemporaryFile("w+")
        self._process = launch(command, environment, self._log)

    def wait_until_ready(self):
        line = self._process.stdout.readline()
        if line.strip() != "ready":
            self._fail("did not get ready", line)

    def check(self):
        """Names and values that the other side must agree with."""
        return self._ask("check")

    def run(self):
        """Seconds per unit of work, of one repetition."""
        return self._ask("run")["seconds"]

    def notes(self):
        """What else the report should say of this side."""
        return {}

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        if self._process.wait() != 0:
            self._fail("failed at the end", "")
        self._log.close()

    def kill(self):
        self._process.kill()
        self._process.wait()

    def _ask(self, request):
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            return json.loads(line)
        except BrokenPipeError:
            self._fail(f"ended before `{request}`", "")
        except json.JSONDecodeError:
            self._fail(f"gave no answer to `{request}`", line)

    def _fail(self, what, line):
        self.kill()
        self._log.seek(0)
        words = " ".join(str(word) for word in self.command)
        raise WorkerError(f"{words}: {what}\n{line}{self._log.read()[-2000:]}")


class Launcher:
    """A program that is started anew for each repetition, and timed from
    there to its one line of output."""

    def __init__(self, command, environment):
        self.command = command
        self._environment = environment

    def wait_until_ready(self):
        """Nothing to wait for: each repetition starts from nothing."""

    def check(self):
        return self._launch()[1]

    def run(self):
        return self._launch()[0]

    def notes(self):
        return {}

    def close(self):
        """Nothing is left running."""

    kill = close

    def _launch(self):
        with tempfile.TemporaryFile("w+") as log:
            start = time.perf_counter()
            process = launch(self.command, self._environment, log)
            try:
                line = process.stdout.readline()
                seconds = time.perf_counter() - start
                process.communicate()
            except BaseException:
                process.kill()
                process.wait()
                raise
            try:
                return seconds, json.loads(line)
            except json.JSONDecodeError:
                log.seek(0)
                words = " ".join(str(word) for word in self.command)
                raise WorkerError(f"{words}: failed\n{log.read()[-2000:]}") from None
