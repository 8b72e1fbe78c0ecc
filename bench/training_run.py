"""Both sides of fashion_mnist_run: whole processes that train a network."""

import json
import pathlib
import shutil
import tempfile
import time

from workers import WorkerError, launch

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE.parent / "configs" / "fashion-resnet.toml"
# What both sides must reach.
ACCURACY = 0.90


def finish(command, environment):
    """Runs a command to its end; gives its output."""
    with tempfile.TemporaryFile("w+") as log:
        process = launch(command, environment, log)
        try:
            output = process.communicate()[0]
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode != 0:
            log.seek(0)
            words = " ".join(str(word) for word in command)
            raise WorkerError(f"{words}: failed\n{log.read()[-2000:]}")
        return output


class TrainingRun:
    """One side. Its run() trains from nothing, and is a failure below
    ACCURACY; `folder` is what both sides share."""

    def __init__(self, tools, folder, environment):
        self.tools, self.folder, self.environment = tools, folder, environment
        self.accuracies = []

    def wait_until_ready(self):
        """Nothing to wait for: each repetition starts from nothing."""

    def check(self):
        """Nothing before the first run: what agrees is the accuracy."""
        return {}

    def notes(self):
        return {"accuracy": self.accuracies}

    def close(self):
        """Nothing is left running, and the folder is not this side's."""

    kill = close

    def note_accuracy(self, accuracy):
        self.accuracies.append(accuracy)
        if accuracy < ACCURACY:
            raise WorkerError(
                f"{type(self).__name__}: accuracy {accuracy}, expected {ACCURACY}"
            )


class AmpkitRun(TrainingRun):
    """`ampkit train` with everything that it does by default: checkpoints,
    event files and report included."""

    def run(self):
        program = self.tools.build / "apps" / "ampkit" / "ampkit"
        target = pathlib.Path(self.folder) / "run"
        shutil.rmtree(target, ignore_errors=True)
        start = time.perf_counter()
        finish(
            [program, "train", CONFIG]
            + ["--set", f"output.dir={self.folder}", "--set", "output.name=run"],
            self.environment,
        )
        seconds = time.perf_counter() - start
        rows = (target / "metrics.jsonl").read_text().splitlines()
        last = [row for row in map(json.loads, rows) if row["kind"] == "eval"][-1]
        self.note_accuracy(max(last["accuracy"], last.get("ema_accuracy", 0.0)))
        return seconds


class PythonRun(TrainingRun):
    """The same run in Python, in the dtype and with the number of loader
    workers that are fastest here; to find these is not timed."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.choice = None

    def command(self, *how):
        # What ampkit wrote at the start of its run, with every key.
        config = pathlib.Path(self.folder) / "run" / "config.toml"
        script = HERE / "peer" / "fashion_mnist_run.py"
        return [self.tools.python, script, config, *how]

    def run(self):
        if self.choice is None:
            self.choice = json.loads(finish(self.command("choose"), self.environment))
        start = time.perf_counter()
        output = finish(
            self.command(self.choice["dtype"], self.choice["workers"]),
            self.environment,
        )
        seconds = time.perf_counter() - start
        self.note_accuracy(json.loads(output)["accuracy"])
        return seconds

    def notes(self):
        return {**super().notes(), **(self.choice or {})}
