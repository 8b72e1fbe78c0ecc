"""`ampkit bisect` and `ampkit compare`: a step in two precisions, and the cure."""

import json
import re
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

QUICK = [
    *("data.limit=256", "data.eval_limit=50", "data.batch_size=32"),
    *("data.workers=0", "output.report=false", "train.threads=1"),
    "precision.init_scale=1024",
]
FOUND = 5


@pytest.fixture(scope="module")
def run():
    """Runs a command, and keeps what it prints to stdout and stderr apart."""

    def run_command(command, status=0):
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        assert done.returncode == status, f"{words}\n{done.stdout}{done.stderr}"
        return done

    return run_command


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture(scope="module")
def train(run, program, root):
    def start(folder, *keys, status=0):
        config = root / "configs" / "fashion-resnet.toml"
        command = [program, "train", config, "--output", folder, "--set", *QUICK]
        return run([*command, *keys], status=status)

    return start


@pytest.fixture(scope="module")
def layer(train, tmp_path_factory):
    """A network in which one convolution gives numbers that fp16 does not hold,
    and the batch norm behind it takes away again; and that layer's path."""
    folder = tmp_path_factory.mktemp("weights")
    train(folder / "run", "train.steps=1", "precision.preset=fp32")
    checkpoint = next((folder / "run").glob("**/*.safetensors"))
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in load_file(checkpoint).items()
        if name.startswith("model.")
    }
    chosen = [n for n, w in weights.items() if n.startswith("layer2.") and w.dim() == 4]
    path = chosen[0].removesuffix(".weight")
    weights[chosen[0]] = weights[chosen[0]] * 1e6
    file = folder / "weights.safetensors"
    save_file(weights, file)
    return file, path


@pytest.fixture(scope="module")
def overflowing(train, layer, tmp_path_factory):
    """A run of that network in fp16, which saved its first step."""
    folder = tmp_path_factory.mktemp("runs") / "overflowing"
    train(folder, "train.steps=2", f"model.weights={layer[0]}")
    assert list((folder / "capsules").iterdir())
    return folder


def test_bisect_finds_the_layer_and_its_policy_cures_the_run(
    run, program, train, overflowing, layer, tmp_path
):
    cure = tmp_path / "cure.toml"
    done = run([program, "bisect", overflowing, "--out", cure, "--json"])
    found = json.loads(done.stdout)
    assert found["layers"]["end"] == "found"
    assert found["layers"]["float32"] == [layer[1]]
    assert found["layers"]["runs"] <= 40
    assert found["without"] == {"finite": False}
    assert found["with"]["finite"] is True
    assert found["with"]["loss"] < 0.01
    assert "conv2d" in found["ops"]["float32"]
    assert cure.read_text() == found["policy"]
    assert f"the policy is in {cure}" in done.stderr

    cured = tmp_path / "cured"
    keys = ("train.steps=2", f"model.weights={layer[0]}")
    train(cured, *keys, f"precision.policy={cure}")
    rows = (cured / "metrics.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, rows) if "loss" in row]
    assert losses and all(isinstance(loss, float) for loss in losses)
    assert not (cured / "capsules").exists() or not list((cured / "capsules").iterdir())


def test_bisect_goes_on_with_the_runs_it_has_noted(
    run, program, overflowing, layer, tmp_path
):
    arguments = [program, "bisect", overflowing, "--no-ops", "--loss", "0.02"]
    first = run([*arguments, "--max-runs", 3, "--out", tmp_path / "a.toml"])
    assert "out of runs" in first.stdout
    second = run([*arguments, "--out", tmp_path / "b.toml", "--json"])
    assert "3 runs are known" in second.stderr
    found = json.loads(second.stdout)["layers"]
    assert found["float32"] == [layer[1]]
    third = run([*arguments, "--out", tmp_path / "c.toml", "--json"])
    assert json.loads(third.stdout)["layers"]["runs"] == 0
    # Other bounds are another search.
    fourth = run([*arguments[:-1], "0.03", "--out", tmp_path / "d.toml"])
    assert "are known" not in fourth.stderr


def test_bisect_says_that_precision_is_not_the_cause(run, program, train, tmp_path):
    folder = tmp_path / "run"
    train(folder, "train.steps=2", "diagnose.inject=nan at=layer2 step=1")
    done = run([program, "bisect", folder], status=1)
    assert "precision is not the cause" in done.stderr
    assert not list(folder.glob("**/*.policy.toml"))


def test_compare_names_the_layer_that_departs(run, program, overflowing, layer):
    text = run([program, "compare", overflowing], status=FOUND).stdout
    assert re.search(rf"departs first at aten::\w+ in {re.escape(layer[1])}: ", text)
    done = run([program, "compare", overflowing, "--json"], status=FOUND)
    found = json.loads(done.stdout)
    assert found["first_departure"]["module"] == layer[1]
    assert found["first_departure"]["output"]["finite"] is False
    assert {"conv1", "fc"} <= {each["module"] for each in found["layers"]}
    before = found["ops"][: found["ops"].index(found["first_departure"])]
    assert before and all(op["output"]["relative"] < 0.05 for op in before)
    assert all(op["output_noise"] < 1e-3 for op in before)


def test_compare_with_a_policy_sees_the_cure(run, program, overflowing, layer, tmp_path):
    policy = tmp_path / "cure.toml"
    run([program, "bisect", overflowing, "--no-ops", "--out", policy])
    done = run([program, "compare", overflowing, "--policy", policy])
    assert "departs nowhere" in done.stdout


def test_compare_reads_what_it_has_dumped(run, program, overflowing, layer, tmp_path):
    dump = tmp_path / "fp32.safetensors"
    run([program, "compare", overflowing, "--precision", "fp32", "--dump", dump])
    assert layer[1] in load_file(dump)
    same = [program, "compare", overflowing, "--precision", "fp32", "--against", dump]
    assert "departs first" not in run(same).stdout
    other = [program, "compare", overflowing, "--against", dump]
    text = run(other, status=FOUND).stdout
    assert re.search(rf"^{re.escape(layer[1])} .*departs first$", text, re.M)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bisect", "missing"], "missing"),
        (["bisect", "RUN", "--precision", "fp12"], "fp16-mixed"),
        (["bisect", "RUN", "--loss", "0"], "--loss"),
        (["bisect", "RUN", "--step", "77"], "no capsule of that step"),
        (["compare", "RUN", "--against", "fp12"], "fp16-mixed"),
        (["compare", "RUN", "--policy", "nlq"], "nlp"),
    ],
)
def test_wrong_usage_is_named(run, program, overflowing, arguments, message):
    command = [overflowing if word == "RUN" else word for word in arguments]
    assert message in run([program, *command], status=2).stderr


def test_damaged_capsule_is_an_error_that_names_it(run, program, overflowing, tmp_path):
    capsule = next((overflowing / "capsules").glob("*.safetensors"))
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(capsule.read_bytes()[:-100])
    assert "damaged.safetensors" in run([program, "compare", damaged], status=3).stderr


def test_activations_of_python_are_ours(run, build, root, tmp_path):
    example = root / "examples" / "04_compare_with_python"
    program = build / "examples" / example.name / "compare_with_python"
    run([sys.executable, example / "dump_activations.py", tmp_path])
    text = run([program, tmp_path]).stdout
    close = r"^[023] +off by (?:0\.0e\+00|\S+e-0[6-9]), cosine 1\.000000$"
    assert len(re.findall(close, text, re.M)) == 3
    assert text.endswith("departs first: -\n")
    # Another network's weights depart at the first module.
    weights = load_file(tmp_path / "weights.safetensors")
    weights["0.weight"] = weights["0.weight"] + torch.randn(64, 16)
    save_file(weights, tmp_path / "weights.safetensors")
    assert run([program, tmp_path], status=1).stdout.endswith("departs first: 0\n")
