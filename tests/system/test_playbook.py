"""docs/nan-playbook.md: each of its commands prints what the page says."""

import pathlib
import re
import shlex

import pytest
import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "nan-playbook.md").read_text()
BLOCKS = re.findall(r"^## ([^\n]*)\n|^```console\n(.*?)^```", PAGE, re.M | re.S)
FOUND = 5


def sections():
    """title: the console blocks below it, as one text."""
    found = {}
    title = None
    for heading, block in BLOCKS:
        if heading:
            title = heading
        else:
            found[title] = found.get(title, "") + block
    return found


def commands(text):
    """(command, the lines that it should print) of a console block."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def words(text):
    return " ".join(text.split())


def pattern(line):
    parts = [re.escape(words(part)) for part in line.split("...")]
    return re.compile(".*".join(parts) + ("" if line.rstrip().endswith("...") else "$"))


def assert_printed(expected, output):
    """The lines of the page in their order; others may stand between only where
    the page has a line of dots."""
    lines = [words(line) for line in output.splitlines() if line.strip()]
    place = 0
    may_skip = False
    for line in expected:
        if line.strip() == "...":
            may_skip = True
            continue
        wanted = pattern(line)
        rest = range(place, len(lines) if may_skip else min(place + 1, len(lines)))
        found = next((i for i in rest if wanted.match(lines[i])), None)
        assert found is not None, f"not printed: {line}\n{output}"
        place = found + 1
        may_skip = False


@pytest.fixture(scope="module")
def folder(tmp_path_factory, build, run):
    """Where the commands run: the configuration and the damaged weights."""
    folder = tmp_path_factory.mktemp("playbook")
    config = re.search(r"^```toml\n# short.toml\n(.*?)^```", PAGE, re.M | re.S)[1]
    (folder / "short.toml").write_text(config)
    program = build / "apps" / "ampkit" / "ampkit"
    run([program, "train", "short.toml", "--output", "seed"], cwd=folder)
    from safetensors import safe_open

    file = sorted((folder / "seed" / "checkpoints").iterdir())[-1]
    with safe_open(file, "pt") as saved:
        names = [name for name in saved.keys() if name.startswith("model.")]
        weights = {name.removeprefix("model."): saved.get_tensor(name) for name in names}
    weights["layer3.0.conv1.weight"][0, 0, 0, 0] = torch.nan
    save_file(weights, folder / "damaged.safetensors")
    return folder


def test_page_has_sections():
    assert len(sections()) >= 5


@pytest.mark.parametrize("title", sections())
def test_commands_print_what_the_page_says(title, folder, build, run):
    program = build / "apps" / "ampkit" / "ampkit"
    ran = commands(sections()[title])
    assert ran
    for command, expected in ran:
        name, *arguments = shlex.split(command)
        assert name == "ampkit"
        done = run([program, *arguments], status=None, cwd=folder)
        found = "rank 0: " in "".join(expected)
        assert done.returncode == (FOUND if found else 0), done.stdout
        # Beside what is said of the machine at the beginning.
        output = re.sub(r"\Aampkit \d.*?^training [^\n]*\n", "", done.stdout, flags=re.M | re.S)
        assert_printed(expected, output)
