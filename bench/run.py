"""Runs the benchmarks; see docs/benchmarks.md. Started by run.sh."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import sys

from measure import CheckError, measure
from suite import BY_NAME, HERE, SUITE, Tools
from workers import WorkerError


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh",
        description="Runs each benchmark side by side with its peer, in turn, and "
        "prints a line each: name ours peer ratio goal met|missed.",
        epilog="Exit status: 0 all ran (a missed goal is reported, not an error), "
        "1 one failed or the sides disagreed, 2 usage.",
    )
    parser.add_argument("names", nargs="*", metavar="name", help="see --list")
    parser.add_argument("--all", action="store_true", help="also the long ones")
    parser.add_argument("--list", action="store_true", help="names, goals and work")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    parser.add_argument(
        "--reps", type=int, metavar="N", help="pairs a benchmark, >= 1"
    )
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=os.environ.get("AMPKIT_BUILD_DIR", HERE.parent / "build" / "release"),
        help="build folder (default: build/release)",
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BY_NAME]
    if unknown:
        parser.error(
            f"unknown benchmark {', '.join(unknown)}; known are "
            + ", ".join(BY_NAME)
        )
    if options.reps is not None and options.reps < 1:
        parser.error(f"--reps must be >= 1, got {options.reps}")
    return options


def chosen(options):
    if options.names:
        return [BY_NAME[name] for name in options.names]
    return [b for b in SUITE if b.default or options.all]


def goal_text(benchmark):
    return f"{'>=' if benchmark.at_least else '<='}{benchmark.goal:.2f}"


def print_list():
    for b in SUITE:
        threads = f"{b.threads} thread{'s' if b.threads > 1 else ''}"
        only = "" if b.default else "; only when named or with --all"
        print(f"{b.name:24} {goal_text(b):7} {b.work} ({threads}{only})")


def figure(benchmark, times):
    value = benchmark.show(statistics.median(times))
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:.{digits}f}{benchmark.unit}"


def line(result):
    b = result.benchmark
    return (
        f"{b.name:24} {figure(b, result.ours):>11} {figure(b, result.peer):>11} "
        f"{result.ratio:7.3f} {goal_text(b):>7} {'met' if result.met else 'missed'}"
    )


def as_json(result):
    b = result.benchmark
    shown = {
        side: [b.show(seconds) for seconds in times]
        for side, times in (("ours", result.ours), ("peer", result.peer))
    }
    return {
        "name": b.name,
        "work": b.work,
        "threads": b.threads,
        "environment": b.environment,
        "languages": {"ours": b.ours.language, "peer": b.peer.language},
        "unit": b.unit,
        "ours": statistics.median(shown["ours"]),
        "peer": statistics.median(shown["peer"]),
        "ratio": result.ratio,
        "goal": {"at_least" if b.at_least else "at_most": b.goal},
        "met": result.met,
        "repetitions": {**shown, "ratio": result.ratios},
        "notes": result.notes,
        "checked": {"bound": b.bound, "ours_and_peer": result.checked},
    }


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    return found[1] if found else platform.machine()


def machine():
    """What the figures depend on, the other load of the machine included."""
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"
        ),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
    }


def teller(benchmark):
    """Shows progress on a terminal's standard error; leaves the output alone."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(
        f"\r\033[K{benchmark.name}: {text}", end="", file=sys.stderr, flush=True
    )


def run_one(benchmark, options, tools):
    """The result, or None with a message if there is none."""
    tell = teller(benchmark)
    try:
        return measure(benchmark, options.reps or benchmark.reps, tools, tell)
    except (CheckError, WorkerError, OSError) as error:
        print(f"bench: error: {benchmark.name}: {error}", file=sys.stderr)
        return None
    finally:
        tell("\r")


def stop(number, frame):
    """Ends through the `except` and `finally` parts, which end the workers."""
    sys.exit(128 + number)


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, stop)
    if options.list:
        print_list()
        return 0
    tools = Tools(build=options.build, python=sys.executable)
    started = machine()
    results = []
    for benchmark in chosen(options):
        result = run_one(benchmark, options, tools)
        results.append(result)
        if result:
            print(line(result), flush=True)
    if options.json:
        report = {
            "machine": started,
            "load_average_at_end": list(os.getloadavg()),
            "benchmarks": [as_json(result) for result in results if result],
        }
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
