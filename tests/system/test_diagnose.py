"""`ampkit diagnose`: what a run leaves, and what is read from it."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

QUICK = [
    *("data.limit=512", "data.eval_limit=100", "data.batch_size=32"),
    *("data.workers=0", "train.steps=6", "output.report=false"),
    *("precision.init_scale=1024", "train.threads=1"),
]
FOUND = 5


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture(scope="module")
def train(run, program, root):
    """Trains into `folder` and gives what was printed."""

    def start(folder, *arguments, keys=(), status=0):
        config = root / "configs" / "fashion-resnet.toml"
        command = [program, "train", config, "--output", folder, *arguments]
        return run([*command, "--set", *QUICK, *keys], status=status).stdout

    return start


@pytest.fixture(scope="module")
def faulty(train, tmp_path_factory):
    """A run with an overflow in step 4, and what it printed."""
    folder = tmp_path_factory.mktemp("runs") / "faulty"
    return folder, train(folder, "--inject", "overflow at=layer2 step=4")


@pytest.fixture(scope="module")
def diagnose(run, program):
    def start(*arguments, status=FOUND):
        return run([program, "diagnose", *arguments], status=status).stdout

    return start


def test_run_says_what_it_saved(faulty):
    folder, output = faulty
    assert re.search(r"step 4 saved \(its loss is not finite\) in \S+", output)
    assert f"`ampkit diagnose {folder}` says where it went wrong" in output
    files = list((folder / "capsules").iterdir())
    assert [file.name for file in files] == ["step-000000000004.safetensors"]


def test_verdict_names_op_layer_and_cure(faulty, diagnose):
    folder, _ = faulty
    text = diagnose(folder)
    assert "faults were planted in this run: overflow at=layer2 step=4" in text
    assert re.search(r"^replayed: loss nan, skipped: .*; the same bits as then$", text, re.M)
    assert re.search(r"^step 4, rank 0: overflow in forward$", text, re.M)
    assert re.search(r"^  op        aten::", text, re.M)
    assert re.search(r"^  module    layer2", text, re.M)
    assert re.search(r"^  do        \S", text, re.M)
    # The last steps of the run stand above.
    assert "6 steps recorded; ended: finished" in text
    assert re.search(r"^ +4 +nan .*skipped", text, re.M)


def test_json_says_the_same(faulty, diagnose):
    folder, _ = faulty
    found = json.loads(diagnose(folder, "--json"))
    assert found["replay"]["identical"] is True
    assert found["replay"]["loss"] == "NaN"
    assert found["finding"]["verdict"] == "overflow in forward"
    assert found["finding"]["module"].startswith("layer2")
    assert found["finding"]["remedy"]
    assert found["capsule"]["step"] == 4
    steps = [row["step"] for row in found["flight"]["steps"]]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert found["flight"]["steps"][3]["fault"] is True


def test_file_and_folder_of_capsules_do_as_well(faulty, diagnose):
    folder, _ = faulty
    file = next((folder / "capsules").iterdir())

    def verdict(path):
        """Without the number of ops that it spread to, which varies."""
        text = diagnose(path)
        return re.sub(r"^  spread .*\n", "", text[text.index(str(file)) :], flags=re.M)

    assert verdict(file) == verdict(folder / "capsules") == verdict(folder)


def test_data_and_run_are_not_needed(faulty, diagnose, tmp_path, train):
    weights = tmp_path / "gone.safetensors"
    folder, _ = faulty
    moved = tmp_path / "capsule.safetensors"
    moved.write_bytes(next((folder / "capsules").iterdir()).read_bytes())
    assert not weights.exists()
    assert "the same bits as then" in diagnose(moved)


def test_healthy_run_has_nothing_to_say(train, diagnose, tmp_path):
    folder = tmp_path / "healthy"
    train(folder)
    text = diagnose(folder, status=0)
    assert "no step was saved" in text
    assert "6 steps recorded" in text
    found = json.loads(diagnose(folder, "--json", status=0))
    assert found["capsule"] is found["finding"] is None


def test_overflow_that_the_scaler_handles_is_no_fault(train, diagnose, tmp_path):
    folder = tmp_path / "skips"
    keys = ["precision.init_scale=1e20", "diagnose.capsule_skips=2", "precision.backoff_factor=0.01"]
    train(folder, keys=keys)
    text = diagnose(folder, status=0)
    assert "saved because many steps in a row were skipped" in text
    assert "which the loss scaler handles" in text


def test_steps_can_be_chosen(train, diagnose, tmp_path):
    folder = tmp_path / "two"
    train(
        folder,
        *("--inject", "nan at=layer1 step=2"),
        *("--inject", "inf at=layer3 step=5"),
    )
    assert "  module    layer3" in diagnose(folder)
    assert "  module    layer1" in diagnose(folder, "--step", 2)
    text = diagnose(folder, "--step", 3, status=2)
    assert "no capsule of that step and rank" in text


def test_missing_and_damaged_files_are_errors(faulty, diagnose, tmp_path):
    folder, _ = faulty
    assert "does not exist" in diagnose(tmp_path / "none", status=2)
    assert "has no capsule" in diagnose(tmp_path, status=3)
    good = next((folder / "capsules").iterdir()).read_bytes()
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(good[: len(good) // 2])
    assert str(bad) in diagnose(bad, status=3)
    flipped = bytearray(good)
    flipped[-5] ^= 4
    bad.write_bytes(flipped)
    text = diagnose(bad, status=3)
    assert str(bad) in text and "is damaged somewhere in bytes" in text
    bad.write_text("no safetensors at all")
    assert str(bad) in diagnose(bad, status=3)


def test_wrong_faults_are_errors(train, tmp_path):
    folder = tmp_path / "run"
    text = train(folder, "--inject", "nam at=layer1 step=1", status=2)
    assert "nam" in text and "nan" in text
    text = train(folder, "--inject", "nan at=layerX step=1", status=2)
    assert "layerX" in text
    assert not folder.exists()


def started(program, root, folder, *keys):
    config = root / "configs" / "fashion-resnet.toml"
    command = [program, "train", config, "--output", folder, "--set", *QUICK, *keys]
    return subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def steps_of(folder):
    log = folder / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


def wait_for_step(process, folder, step):
    end = time.monotonic() + 120
    while steps_of(folder) < step:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)


def test_sigusr1_saves_the_next_step(program, root, diagnose, tmp_path):
    folder = tmp_path / "asked"
    process = started(program, root, folder, "train.steps=400")
    wait_for_step(process, folder, 3)
    process.send_signal(signal.SIGUSR1)
    end = time.monotonic() + 60
    while not list(folder.glob("capsules/step-*.safetensors")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.kill()
    process.communicate()
    text = diagnose(folder, status=0)
    assert "saved because somebody asked" in text
    assert "the same bits as then" in text
    assert "no value of this step was born bad" in text


def test_flight_recorder_survives_sigkill(program, root, diagnose, tmp_path):
    folder = tmp_path / "killed"
    process = started(program, root, folder, "train.steps=400")
    wait_for_step(process, folder, 8)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    text = diagnose(folder, status=0)
    found = json.loads(diagnose(folder, "--json", status=0))["flight"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = {row["step"]: row["loss"] for row in rows if row["kind"] == "train"}
    assert found["recorded"] >= max(logged) >= 8
    assert found["ended"] is None
    assert found["current_step"] in (found["recorded"], found["recorded"] + 1, found["recorded"] + 2)
    for step in found["steps"]:
        assert logged.get(step["step"], step["loss"]) == step["loss"]
    assert re.search(rf"last seen in step {found['current_step']}, (forward|backward|update), at", text)
