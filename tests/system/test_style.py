"""The rules of CONTRIBUTING.md that a program can check."""

import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 400
# Lowest first: a file may include its own layer and those before it.
LAYERS = ["io", "kernels", "amp", "optim", "dist", "diagnose", "zoo", "apps"]
# Checking one file takes 2 to 20 s, so that the default run looks at what
# changed last. AMPKIT_TEST_LONG=1 looks at all.
TIDY_FILES = 6


def git(*arguments):
    done = subprocess.run(
        ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@functools.cache
def files(*endings):
    """Every file of the repository, tracked or about to be, by its ending."""
    names = git("ls-files", "--cached", "--others", "--exclude-standard")
    found = [ROOT / name for name in names if name.endswith(endings)]
    return [path for path in found if path.exists()]


def name_of(path):
    return str(path.relative_to(ROOT))


def listing(problems):
    return "\n".join(problems)


def test_cpp_files_are_formatted(run):
    run(["clang-format-19", "--dry-run", "-Werror", *files(".cpp", ".h")])


def test_shell_scripts_pass_shellcheck(run):
    scripts = files(".sh") + [ROOT / ".ci" / "run"]
    run(["shellcheck", "-x", *scripts], cwd=ROOT)


def test_files_are_short():
    long_files = []
    for path in files(".cpp", ".h", ".py", ".sh", ".cmake", "CMakeLists.txt"):
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES:
            long_files.append(f"{name_of(path)}: {lines} lines")
    assert not long_files, listing(long_files)


def layer_of(path):
    """The layer a source or public header belongs to, or None."""
    for pattern in (r"^(?:src|include/ampkit)/(\w+)/", r"^(zoo|apps)/"):
        match = re.match(pattern, name_of(path))
        if match:
            return match[1]
    return None


def test_no_layer_includes_one_above_it():
    wrong = []
    for path in files(".cpp", ".h"):
        layer = layer_of(path)
        if layer is None:
            continue
        assert layer in LAYERS, f"{name_of(path)}: unknown layer {layer}"
        allowed = LAYERS[: LAYERS.index(layer) + 1]
        for included in re.findall(
            r'^#include [<"](?:ampkit/)?(\w+)/', path.read_text(), re.M
        ):
            if included in LAYERS and included not in allowed:
                wrong.append(f"{name_of(path)} includes {included}/")
    assert not wrong, listing(wrong)


def public_headers():
    return [p for p in files(".h") if "include/ampkit/" in name_of(p)]


def test_public_headers_stay_light():
    heavy = [
        name_of(path)
        for path in public_headers()
        if re.search(r"#include <torch/(torch|all|nn|script)\.h>", path.read_text())
    ]
    assert not heavy, listing(heavy)


def undocumented(path):
    """Types and functions of a header that no /// comment stands above."""
    lines = path.read_text().splitlines()
    declaration = re.compile(
        r"^(?:(?:class|struct|enum class) (?:AMPKIT_API )?(\w+)[^;]*$"
        r"|AMPKIT_API [^;{]*?(\w+)\()"
    )
    for number, line in enumerate(lines):
        match = declaration.match(line)
        above = number - 1
        while above >= 0 and lines[above].startswith(("template", "[[")):
            above -= 1
        if match and not lines[above].startswith("///"):
            yield f"{name_of(path)}:{number + 1}: {match[1] or match[2]}"


def test_public_declarations_are_documented():
    missing = [entry for path in public_headers() for entry in undocumented(path)]
    assert not missing, listing(missing)


def test_umbrella_header_brings_the_whole_library():
    include = ROOT / "include"
    reached = set()
    ahead = ["ampkit/ampkit.h"]
    while ahead:
        name = ahead.pop()
        if name not in reached and (include / name).exists():
            reached.add(name)
            text = (include / name).read_text()
            ahead += re.findall(r"#include <(ampkit/[^>]+)>", text)
    library = {
        str(path.relative_to(include))
        for path in public_headers()
        if path.is_relative_to(include)
    }
    assert library - reached == set()


def test_nothing_is_left_undone():
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b")
    left = [
        name_of(path)
        for path in files(".cpp", ".h", ".py", ".sh", ".cmake", ".toml", ".md")
        if path != pathlib.Path(__file__).resolve() and marks.search(path.read_text())
    ]
    assert not left, listing(left)


def test_links_between_pages_lead_somewhere():
    dead = []
    for page in files(".md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                dead.append(f"{name_of(page)}: {target}")
    assert not dead, listing(dead)


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"({name})" not in index} == set()


# Or what needs a library that only GCC has here.
ONLY_GCC = (
    "-fopenmp",
    "-fpch",
    "-Winvalid-pch",
    "-Wno-restrict",
    "-Wno-stringop-overflow",
    "-Wno-subobject-linkage",
    "--param",
)


def compile_flags(entry):
    """The flags of a compile command, without what only GCC knows."""
    words = shlex.split(entry["command"])[1:]
    flags = []
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word in ("-o", "-c", "-include"):
            skip = 1
        elif not word.startswith(("-Werror", *ONLY_GCC)):
            flags.append(word)
    # Through ccache, the compiler itself is still among the words.
    while flags and not flags[0].startswith("-"):
        flags.pop(0)
    return flags


def commands_by_source(build):
    """The compile command of each source; several files share that of the unity
    file which includes them."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.parent.name == "Unity":
            sources = re.findall(r'^#include "(.+)"$', path.read_text(), re.M)
        else:
            sources = [path]
        commands |= {pathlib.Path(source): entry for source in sources}
    return commands


def recently_changed(sources):
    """Uncommitted files first, then in the order of their last commit."""
    names = git("diff", "--name-only", "HEAD")
    names += git("ls-files", "--others", "--exclude-standard")
    names += git("log", "--name-only", "--format=", "-n", "200")
    order = {name: place for place, name in reversed(list(enumerate(names)))}
    return sorted(sources, key=lambda path: order.get(name_of(path), len(order)))


def tidy(job):
    path, flags, folder = job
    done = subprocess.run(
        ["clang-tidy-19", "--quiet", path, "--", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    # A clang-tidy that did not run prints no finding, but an error.
    return "" if done.returncode == 0 else done.stdout or done.stderr


@pytest.mark.slow
def test_clang_tidy_finds_nothing(build, long_run):
    commands = commands_by_source(build)
    sources = [p for p in files(".cpp") if layer_of(p) and p in commands]
    assert sources, "no source of the library has a compile command"
    chosen = recently_changed(sources)[: None if long_run else TIDY_FILES]
    jobs = [
        (path, compile_flags(commands[path]), commands[path]["directory"])
        for path in chosen
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = [text for text in pool.map(tidy, jobs) if text]
    assert not findings, listing(findings)
