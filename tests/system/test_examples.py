"""The examples do what their README says."""

import re


def run_example(run, build, name, *arguments, status=0):
    program = build / "examples" / name / name.split("_", 1)[1]
    return run([program, *arguments], status=status).stdout


def test_minimal_loop_learns_the_spirals(run, build):
    for precision in ("fp16-mixed", "bf16-mixed", "fp32"):
        text = run_example(run, build, "01_minimal_loop", precision)
        accuracy = float(re.search(r"accuracy on unseen points: ([\d.]+) %", text)[1])
        assert accuracy > 97, text


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
