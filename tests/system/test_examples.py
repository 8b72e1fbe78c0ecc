"""The examples do what their README says."""

import re
import sys


def run_example(run, build, name, *arguments, status=0):
    program = build / "examples" / name / name.split("_", 1)[1]
    return run([program, *arguments], status=status).stdout


def test_minimal_loop_learns_the_spirals(run, build):
    for precision in ("fp16-mixed", "bf16-mixed", "fp32"):
        text = run_example(run, build, "01_minimal_loop", precision)
        accuracy = float(re.search(r"accuracy on unseen points: ([\d.]+) %", text)[1])
        assert accuracy > 97, text


def test_minimal_loop_skips_steps_of_fp16_only(run, build):
    def skipped(precision):
        text = run_example(run, build, "01_minimal_loop", precision)
        return int(re.search(r"(\d+) steps skipped", text)[1])

    assert skipped("fp16-mixed") > 0
    assert skipped("bf16-mixed") == 0


def test_minimal_loop_grows_the_scale_of_fp16_only(run, build):
    def last_scale(precision):
        text = run_example(run, build, "01_minimal_loop", precision)
        return float(re.search(r"^ *400 .* (\d+)$", text, re.M)[1])

    assert last_scale("fp16-mixed") > 65536
    assert last_scale("fp32") == 1


def test_minimal_loop_lists_the_precisions(run, build):
    text = run_example(run, build, "01_minimal_loop", "fp12", status=1)
    assert text.startswith("minimal_loop: error: ")
    assert "fp16-mixed" in text


def last_line(text):
    return text.splitlines()[-1]


def test_resumed_run_ends_as_one_left_alone(run, build, tmp_path):
    alone = run_example(run, build, "02_resume", tmp_path / "alone", 100)
    run_example(run, build, "02_resume", tmp_path / "stopped", 50)
    resumed = run_example(run, build, "02_resume", tmp_path / "stopped", 100)
    assert resumed.startswith("resumed at step 40\n")
    assert last_line(resumed) == last_line(alone)


def test_run_of_python_ends_the_same_with_steps_of_cpp_in_between(
    run, build, root, tmp_path
):
    script = root / "examples" / "03_from_python" / "train.py"

    def python(file, steps):
        return run([sys.executable, script, tmp_path / file, steps]).stdout

    alone = python("alone.pt", 150)
    python("both.pt", 50)
    run_example(run, build, "03_from_python", tmp_path / "both.pt", 100)
    assert python("both.pt", 150) == alone


def test_resume_passes_over_a_damaged_checkpoint(run, build, tmp_path):
    alone = run_example(run, build, "02_resume", tmp_path, 60)
    latest = max(tmp_path.glob("*.safetensors"))
    latest.write_bytes(latest.read_bytes()[:-1])
    resumed = run_example(run, build, "02_resume", tmp_path, 60)
    assert "resumed at step 40" in resumed
    assert last_line(resumed) == last_line(alone)
