#!/usr/bin/env python3
"""Counts the tests of one run and prints `N passed, N failed` as last line.

    summarize_tests.py FOLDER...

Each FOLDER is a test-results folder as scripts/test.sh leaves it:

    ctest.json   what was to run (ctest --show-only=json-v1)
    ctest.xml    what ctest saw (--output-junit)
    NAME.xml     what a googletest binary wrote, one per ctest entry
    pytest-*.xml what pytest wrote, one per run
    steps.txt    one line a step that had to finish: `pytest-oracle 0`

A binary or a pytest run that ended without its file counts as one failure, and
so does a test that skipped itself for a reason that is not one of
EXPECTED_SKIPS: what did not run is not a pass.
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

# A test may skip itself for what the machine is, never for what is missing in
# the set-up. It says so in these words.
EXPECTED_SKIPS = re.compile(
    r"needs (a CUDA device|a processor with(out)? |AMPKIT_TEST_LONG=1)"
)


class Counts:
    def __init__(self):
        self.passed = 0
        self.failures = []
        self.skips = []

    def skip(self, name, reason):
        self.skips.append((name, reason))
        if not EXPECTED_SKIPS.search(reason):
            self.failures.append(f"{name}: skipped for an unexpected reason")


def skip_reason(case):
    skipped = case.find("skipped")
    if skipped is not None:
        text = skipped.get("message") or skipped.text or ""
        return text.strip().splitlines()[-1] if text.strip() else "no reason"
    if case.get("status") == "notrun":
        return "disabled"
    return None


def count_cases(path, counts):
    """Adds the test cases of a googletest or pytest file."""
    try:
        cases = list(xml.parse(path).getroot().iter("testcase"))
    except xml.ParseError as error:
        counts.failures.append(f"{path.stem}: unreadable results ({error})")
        return
    for case in cases:
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        reason = skip_reason(case)
        if reason is not None:
            counts.skip(name, reason)
        elif case.find("failure") is not None or case.find("error") is not None:
            counts.failures.append(name)
        else:
            counts.passed += 1


def writes_own_file(test):
    return any("--gtest_output=xml:" in word for word in test.get("command", []))


def count_ctest(folder, counts):
    plan = json.loads((folder / "ctest.json").read_text())
    seen = {}
    if (folder / "ctest.xml").exists():
        for case in xml.parse(folder / "ctest.xml").getroot().iter("testcase"):
            seen[case.get("name")] = case
    for test in plan.get("tests", []):
        name = test["name"]
        status = seen[name].get("status") if name in seen else "not run"
        results = folder / f"{name}.xml"
        if not writes_own_file(test):
            if status == "run":
                counts.passed += 1
            else:
                counts.failures.append(f"{name}: {status}")
        elif not results.exists():
            counts.failures.append(f"{name}: ended without results ({status})")
        else:
            before = len(counts.failures)
            count_cases(results, counts)
            if status != "run" and len(counts.failures) == before:
                counts.failures.append(f"{name}: failed after its last test")


def count_steps(folder, counts):
    """A step that failed must show in some file; else it counts itself."""
    for line in (folder / "steps.txt").read_text().splitlines():
        name, code = line.rsplit(" ", 1)
        results = folder / f"{name}.xml"
        before = len(counts.failures)
        if results.exists() and name.startswith("pytest-"):
            count_cases(results, counts)
        elif name.startswith("pytest-"):
            counts.failures.append(f"{name}: ended without results")
        if code != "0" and len(counts.failures) == before:
            counts.failures.append(f"{name}: exit status {code}")


def main(folders):
    counts = Counts()
    for folder in map(pathlib.Path, folders):
        if (folder / "ctest.json").exists():
            count_ctest(folder, counts)
        if (folder / "steps.txt").exists():
            count_steps(folder, counts)
    for name, reason in counts.skips:
        print(f"skipped: {name}: {reason}")
    for name in counts.failures:
        print(f"FAILED: {name}")
    print(f"{counts.passed} passed, {len(counts.failures)} failed")
    return 1 if counts.failures or counts.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
