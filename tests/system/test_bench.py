"""bench/run.sh: its command line, its lines and its JSON. No goal is asserted:
tests run beside other work."""

import importlib
import json
import re
import types

import pytest

NAMES = [
    "overhead_bound_step",
    "bf16_block_vs_fp32",
    "bf16_block_vs_python",
    "optimizer_25m",
    "optimizer_25m_libtorch",
    "optimizer_adafactor",
    "optimizer_adagrad",
    "optimizer_adam",
    "optimizer_adamw",
    "optimizer_lamb",
    "optimizer_lion",
    "optimizer_rmsprop",
    "optimizer_sgd",
    "optimizer_muon",
    "master_step",
    "startup",
    "loader",
    "small_resnet_fp32",
    "autocast_call",
    "policy_engine",
    "controller",
    "watch_full",
    "watch_sampling",
    "activation_bytes",
    "recompute_bytes",
    "recompute_extra_time",
    "fashion_mnist_run",
]


@pytest.fixture
def bench(root, run):
    def run_bench(*arguments, status=0):
        return run([root / "bench" / "run.sh", *arguments], status).stdout

    return run_bench


def test_list_names_every_benchmark_with_its_goal(bench):
    rows = bench("--list").splitlines()
    assert [row.split()[0] for row in rows] == NAMES
    assert all(re.match(r"[<>]=\d+\.\d\d$", row.split()[1]) for row in rows)


def test_unknown_name_is_a_usage_error_that_lists_the_known(bench):
    output = bench("overhead_bound_stop", status=2)
    assert "unknown benchmark overhead_bound_stop; known are" in output
    assert all(name in output for name in NAMES)


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_repetitions_below_one_are_a_usage_error(bench, count):
    assert "--reps" in bench("--reps", count, "startup", status=2)


def test_missing_program_is_named(bench, tmp_path):
    output = bench("--build", tmp_path, "overhead_bound_step", status=1)
    assert "bench: error: overhead_bound_step" in output
    assert f"{tmp_path}/bench/ampkit_bench is missing; build it with" in output


def test_a_run_gives_a_line_and_json(bench, tmp_path):
    report = tmp_path / "bench.json"
    output = bench("--reps", "1", "--json", report, "overhead_bound_step")
    name, ours, peer, ratio, goal, verdict = output.split()
    assert (name, goal) == ("overhead_bound_step", "<=0.35")
    assert float(ours.removesuffix("ms")) > 0 and float(peer.removesuffix("ms")) > 0
    assert verdict == ("met" if float(ratio) <= 0.35 else "missed")

    read = json.loads(report.read_text())
    assert {"processor", "cores", "load_average"} <= read["machine"].keys()
    (entry,) = read["benchmarks"]
    assert entry["name"] == name
    assert entry["threads"] == 1
    assert entry["unit"] == "ms"
    assert entry["goal"] == {"at_most": 0.35}
    assert entry["met"] == (verdict == "met")
    assert entry["ratio"] == pytest.approx(entry["ours"] / entry["peer"])
    assert {len(times) for times in entry["repetitions"].values()} == {1}


def test_both_sides_computed_the_same(bench, tmp_path):
    report = tmp_path / "bench.json"
    bench("--reps", "1", "--json", report, "startup")
    (entry,) = json.loads(report.read_text())["benchmarks"]
    checked = entry["checked"]
    assert checked["ours_and_peer"]
    for ours, peer in checked["ours_and_peer"].values():
        assert abs(ours - peer) <= checked["bound"] * abs(peer)


@pytest.fixture
def compare(root, monkeypatch):
    """compare(ours, peer) of bench/measure.py, for numbers within 1 %."""
    monkeypatch.syspath_prepend(root / "bench")
    measure = importlib.import_module("measure")
    benchmark = types.SimpleNamespace(bound=0.01)

    def run_compare(ours, peer):
        return measure.compare(benchmark, ours, peer)

    run_compare.Error = measure.CheckError
    return run_compare


def test_sides_within_the_bound_may_be_timed(compare):
    assert compare({"loss": 2.01}, {"loss": 2.0}) == {"loss": [2.01, 2.0]}


@pytest.mark.parametrize("ours", [2.03, float("nan")])
def test_sides_that_disagree_are_not_timed(compare, ours):
    with pytest.raises(compare.Error, match="loss: ours .*, peer 2.0, .* 0.01"):
        compare({"loss": ours}, {"loss": 2.0})


def test_sides_that_check_different_things_are_not_timed(compare):
    with pytest.raises(compare.Error, match="checks differ"):
        compare({"loss": 2.0}, {"loss": 2.0, "norm": 1.0})
