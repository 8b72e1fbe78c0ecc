"""Measures one benchmark: both sides checked, then timed in turn."""

import dataclasses
import shutil
import statistics
import tempfile
import time

# How long the other side is left alone after a repetition: OpenMP's threads
# spin for some milliseconds before they sleep.
PAUSE_SECONDS = 0.05


class CheckError(Exception):
    """The two sides did not compute the same."""


@dataclasses.dataclass
class Result:
    """What a benchmark gave; times in seconds per unit of work."""

    benchmark: object
    ours: list
    peer: list
    ratios: list
    # By name, ours and the peer's.
    checked: dict
    notes: dict

    @property
    def ratio(self):
        """The median over the pairs: both of a pair met the same machine."""
        return statistics.median(self.ratios)

    @property
    def met(self):
        goal = self.benchmark.goal
        return self.ratio >= goal if self.benchmark.at_least else self.ratio <= goal


def compare(benchmark, ours, peer):
    """Both sides' values by name; raises CheckError unless they agree."""
    if ours.keys() != peer.keys():
        raise CheckError(f"checks differ: ours {list(ours)}, peer {list(peer)}")
    for name, theirs in peer.items():
        if not abs(ours[name] - theirs) <= benchmark.bound * abs(theirs):
            raise CheckError(
                f"{name}: ours {ours[name]}, peer {theirs}, which is more than "
                f"{benchmark.bound:g} relative apart"
            )
    return {name: [ours[name], peer[name]] for name in peer}


def measure(benchmark, reps, tools, tell):
    """`tools`: see suite.Tools; `tell`: called with what happens at present."""
    workers = []
    folder = tempfile.mkdtemp(prefix="ampkit-bench-")
    try:
        tell("starting")
        for side in (benchmark.peer, benchmark.ours):
            workers.append(side.start(tools, folder, benchmark.environment))
        for worker in workers:
            worker.wait_until_ready()
        result = _measure(benchmark, reps, workers, tell)
        result.notes = {"peer": workers[0].notes(), "ours": workers[1].notes()}
        for worker in workers:
            worker.close()
        return result
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(benchmark, reps, workers, tell):
    peer, ours = workers
    tell("checking")
    checked = compare(benchmark, ours.check(), peer.check())
    for _ in range(benchmark.warmup):
        tell("warming up")
        for worker in workers:
            worker.run()
    result = Result(benchmark, [], [], [], checked, {})
    for rep in range(reps):
        tell(f"repetition {rep + 1} of {reps}")
        for times, worker in ((result.ours, ours), (result.peer, peer)):
            time.sleep(PAUSE_SECONDS)
            times.append(worker.run())
        pair = result.ours[-1] / result.peer[-1]
        result.ratios.append(1 / pair if benchmark.at_least else pair)
    return result
