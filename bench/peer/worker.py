"""The Python side of a benchmark: see ../workers.py for the conversation."""

import json
import sys
import time


def serve(check, run):
    """Answers `check` with check(), a dict of numbers, and `run` with run(),
    seconds per unit of work, until standard input ends."""
    print("ready", flush=True)
    for request in sys.stdin:
        answer = check() if request.strip() == "check" else {"seconds": run()}
        print(json.dumps(answer), flush=True)


def seconds_per_call(function, count):
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


def losses(step, count):
    """The losses of the first steps, as a check."""
    return {f"loss of step {i + 1}": step().item() for i in range(count)}
