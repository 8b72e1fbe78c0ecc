"""scripts/summarize_tests.py: how test results are counted."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSES = '<testcase classname="A" name="works" status="run" result="completed"/>'
FAILS = '<testcase classname="A" name="breaks"><failure message="1 != 2"/></testcase>'


def skips(reason):
    return (
        '<testcase classname="A" name="waits" result="skipped">'
        f'<skipped message="a_test.cpp:7&#x0A;{reason}"/></testcase>'
    )


class Results:
    """A test-results folder, made entry by entry."""

    def __init__(self, folder, run):
        self.folder = folder
        self.run = run
        self.plan = []
        self.seen = []

    def binary(self, name, *cases, status="run"):
        """A googletest binary; without cases it left no file."""
        self.plan.append(f'{{"name": "{name}", "command": ["--gtest_output=xml:"]}}')
        self.seen.append(f'<testcase name="{name}" status="{status}"/>')
        if cases:
            self.write(name, *cases)
        return self

    def step(self, name, status, *cases):
        with open(self.folder / "steps.txt", "a") as steps:
            steps.write(f"{name} {status}\n")
        if cases:
            self.write(name, *cases)
        return self

    def write(self, name, *cases):
        text = f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
        (self.folder / f"{name}.xml").write_text(text)

    def summary(self, status):
        if self.plan:
            plan = f'{{"tests": [{", ".join(self.plan)}]}}'
            (self.folder / "ctest.json").write_text(plan)
            seen = f"<testsuite>{''.join(self.seen)}</testsuite>"
            (self.folder / "ctest.xml").write_text(seen)
        command = ["python3", ROOT / "scripts" / "summarize_tests.py", self.folder]
        return self.run(command, status=status).stdout


@pytest.fixture
def results(tmp_path, run):
    return Results(tmp_path, run)


def test_summary_adds_up_binaries_and_pytest_runs(results):
    results.binary("a_test", PASSES, PASSES).step("pytest-oracle", 0, PASSES)
    assert results.summary(status=0).splitlines()[-1] == "3 passed, 0 failed"


def test_summary_names_each_failure(results):
    results.binary("a_test", PASSES, FAILS, status="fail")
    text = results.summary(status=1)
    assert "FAILED: A.breaks" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed"


def test_summary_counts_a_crashed_binary(results):
    results.binary("a_test", PASSES).binary("b_test", status="fail")
    text = results.summary(status=1)
    assert "b_test: ended without results" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed"


def test_summary_counts_a_crash_after_the_last_test(results):
    results.binary("a_test", PASSES, status="fail")
    assert results.summary(status=1).splitlines()[-1] == "1 passed, 1 failed"


def test_summary_counts_a_pytest_run_that_died(results):
    results.binary("a_test", PASSES).step("pytest-system", 139)
    text = results.summary(status=1)
    assert "pytest-system: ended without results" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed"


def test_summary_counts_a_step_that_did_not_finish(results):
    results.step("setup", 0).step("build", 1)
    text = results.summary(status=1)
    assert "build: exit status 1" in text
    assert text.splitlines()[-1] == "0 passed, 1 failed"


def test_summary_accepts_a_skip_for_what_the_machine_lacks(results):
    results.binary("a_test", PASSES, skips("needs a CUDA device"))
    text = results.summary(status=0)
    assert "skipped: A.waits: needs a CUDA device" in text
    assert text.splitlines()[-1] == "1 passed, 0 failed"


def test_summary_fails_on_any_other_skip(results):
    results.binary("a_test", PASSES, skips("chromium is not installed"))
    text = results.summary(status=1)
    assert "skipped for an unexpected reason" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed"
