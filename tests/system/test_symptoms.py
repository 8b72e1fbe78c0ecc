"""docs/symptoms.md: every symptom has a test, and that test exists.

Names are read from the sources, which needs no build. A source that no CMakeLists.txt
lists, and a parameterized test that nothing instantiates, would never run: they don't
count.
"""

import ast
import difflib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "symptoms.md"
HEADINGS = [
    "Autocast",
    "Loss scaling",
    "Optimizers and clipping",
    "Saving",
    "Modules and TorchScript",
    "Building, data, parity",
    "FP8",
    "Many processes",
]
THREAD = re.compile(r"(?:pytorch|[\w.-]+/[\w.-]+)#\d+")
NO_THREAD = "none known"


def gtests_of(source):
    """Suite.Name of each test in a C++ source that would run."""
    for kind, suite, name in re.findall(
        r"^TEST(_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", source, re.M
    ):
        instantiated = re.search(
            rf"^INSTANTIATE_TEST_SUITE_P\(\s*\w*,\s*{suite}\b", source, re.M
        )
        if (kind != "_P" or instantiated) and not name.startswith("DISABLED_"):
            yield f"{suite}.{name}"


def all_gtests():
    found = set()
    for lists in (ROOT / "tests").rglob("CMakeLists.txt"):
        listed = re.sub("#.*", "", lists.read_text())
        for name in re.findall(r"[\w/]+_test\.cpp", listed):
            found.update(gtests_of((lists.parent / name).read_text()))
    return found


def all_pytests():
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def tables(page):
    """heading: list of (line number, cells) of the rows below it."""
    found = {}
    rows = None
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("## "):
            rows = found.setdefault(line.removeprefix("## "), [])
        elif line.startswith("|") and rows is not None:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0] not in ("symptom", "---"):
                rows.append((number, cells))
    return found


def faults_of_row(cells, tests):
    if len(cells) != 4:
        yield f"{len(cells)} cells, expected symptom | threads | what | test"
        return
    symptom, threads, what, test_cell = cells
    if not symptom or not what:
        yield "no symptom, or nothing said of it"
    for thread in threads.split(", "):
        if threads != NO_THREAD and not THREAD.fullmatch(thread):
            yield f"thread '{thread}', expected owner/repository#number"
    names = re.findall(r"`([^`]+)`", test_cell)
    if not names:
        yield "no test"
    for name in names:
        if name not in tests:
            near = difflib.get_close_matches(name, tests, 1)
            yield f"no test {name}" + (f"; is it {near[0]}?" if near else "")


def faults(page, tests):
    seen = {}
    for rows in tables(page).values():
        for number, cells in rows:
            for fault in faults_of_row(cells, tests):
                yield f"line {number}: {fault}"
            if seen.setdefault(cells[0], number) != number:
                yield f"line {number}: as in line {seen[cells[0]]}"


def test_every_symptom_has_a_test_that_exists():
    tests = all_gtests() | all_pytests()
    found = list(faults(PAGE.read_text(), tests))
    assert not found, "\n".join(found)


def test_symptoms_stand_under_the_headings_that_users_look_for():
    assert list(tables(PAGE.read_text())) == HEADINGS


def row(*cells):
    return "## Saving\n| " + " | ".join(cells) + " |\n"


@pytest.mark.parametrize(
    "page,fault",
    [
        (row("It hangs", "pytorch#1", "it does not", ""), "line 2: no test"),
        (row("It hangs", "pytorch#1", "", "`A.Hangs`"), "line 2: no symptom, or "),
        (row("It hangs", "pytorch#1", "`A.Hangs`"), "line 2: 3 cells"),
        (row("It hangs", "once", "no", "`A.Hangs`"), "line 2: thread 'once'"),
        (
            row("It hangs", "o/r#1, pytorch#2", "no", "`A.Hang`"),
            "line 2: no test A.Hang; is it A.Hangs?",
        ),
        (
            row("It hangs", NO_THREAD, "no", "`A.Hangs`")
            + row("It hangs", NO_THREAD, "no", "`A.Hangs`"),
            "line 4: as in line 2",
        ),
    ],
)
def test_faults_of_a_row_are_found(page, fault):
    found = list(faults(page, {"A.Hangs"}))
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_what_would_not_run_is_no_test():
    source = """
TEST(A, Runs) {}
TEST_F(
    B, RunsToo) {}
TEST(A, DISABLED_Waits) {}
TEST_P(C, Instantiated) {}
INSTANTIATE_TEST_SUITE_P(
    All, C, ::testing::Bool());
TEST_P(D, Forgotten) {}
// TEST(A, Commented) {}
"""
    assert list(gtests_of(source)) == ["A.Runs", "B.RunsToo", "C.Instantiated"]
