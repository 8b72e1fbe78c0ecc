"""Completion as a person has it: a real shell, a real TAB."""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time

import pytest

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture(scope="module")
def scripts(program, run, tmp_path_factory):
    """The script of each shell, by its name."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        text = run([program, "completion", shell]).stdout
        (folder / shell).write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path):
    """A place with two configurations, another file and a folder."""
    for name in ("one.toml", "two.toml", "notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "runs").mkdir()
    return tmp_path


@pytest.fixture
def complete(scripts, folder, run):
    """What bash's own completion function replies at the end of a line."""

    def at_end_of(line):
        code = f"""
            source {scripts / "bash"}
            COMP_LINE={shlex.quote(line)}
            COMP_POINT=${{#COMP_LINE}}
            _ampkit
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = run(["bash", "--norc", "-c", code], cwd=folder)
        return sorted(done.stdout.split())

    return at_end_of


COMMANDS = [
    *("train", "run", "report", "diagnose", "bisect", "compare", "rollout"),
    *("doctor", "ops", "completion"),
]


def test_subcommands(complete):
    assert complete("ampkit ") == sorted(COMMANDS)
    assert complete("ampkit do") == ["doctor"]
    assert complete("ampkit --ver") == ["--version"]


def test_flags_are_those_of_help(complete, program, run):
    for command in COMMANDS:
        text = run([program, command, "--help"]).stdout
        options = text[text.index("\nOptions:") :].split("\n\n")[0]
        flags = set(re.findall(r"^\s+(?:-\w,)?(--[\w-]+)", options, re.M))
        assert "--help" in flags
        assert set(complete(f"ampkit {command} --")) == flags


def test_values(complete):
    assert complete("ampkit completion ") == ["bash", "fish", "zsh"]
    assert complete("ampkit report ") == ["runs"]
    assert complete("ampkit report runs --output n") == ["notes.txt"]
    assert complete("ampkit report runs --output=n") == ["notes.txt"]
    assert complete("ampkit ops --device ") == ["cpu", "cuda"]


def test_words_stand_beside_files(complete):
    policies = ["cv", "nlp", "pytorch", "speech", "strict"]
    files = ["one.toml", "runs", "two.toml"]
    assert complete("ampkit ops --policy ") == sorted(policies + files)
    assert complete("ampkit ops --policy=s") == ["speech", "strict"]
    assert complete("ampkit ops --tree resnet3") == ["resnet34"]
    assert "one.toml" in complete("ampkit ops --tree ")
    assert complete("ampkit train --set precision.policy=s") == ["speech", "strict"]


def test_configurations_are_toml_files_and_folders(complete):
    assert complete("ampkit train ") == ["one.toml", "runs", "two.toml"]


def test_keys_are_those_of_the_program(complete, program, run):
    text = run([program, "train", "--keys"]).stdout
    section, keys = None, []
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif re.match(r"\w+ = ", line):
            keys.append(f"{section}.{line.split()[0]}=")
    assert len(keys) > 30
    assert complete("ampkit train one.toml --set ") == sorted(keys)
    assert complete("ampkit train --set train.ep") == ["train.epochs="]


def test_values_of_keys(complete):
    # bash replaces what stands behind the "=" only.
    assert complete("ampkit train --set optimizer.name=ad") == [
        "adafactor",
        "adagrad",
        "adam",
        "adamw",
    ]
    assert complete("ampkit train --set output.report=f") == ["false"]
    assert complete("ampkit train --set train.epochs=") == []


def test_set_takes_many_keys_until_the_next_option(complete):
    line = "ampkit train one.toml --set train.epochs=3 "
    assert complete(line + "train.see") == ["train.seed="]
    assert complete(line + "--resu") == ["--resume"]
    assert complete(line + "--overwrite o") == ["one.toml"]


def test_unknown_shell_is_an_error_that_lists_the_known(program, run):
    done = run([program, "completion", "tcsh"], status=2)
    assert "tcsh" in done.stdout
    for shell in ("bash", "zsh", "fish"):
        assert shell in done.stdout


PROMPT = "ready> "


def read_until(terminal, text):
    output, end = "", time.monotonic() + TIMEOUT_S
    while text not in output:
        ready = select.select([terminal], [], [], max(0, end - time.monotonic()))[0]
        assert ready, f"waited for {text!r}, got {output!r}"
        output += os.read(terminal, 4096).decode(errors="replace")
    return output


def type_into(command, lines, keys, until, cwd):
    """Types lines, each at a prompt, then keys, and waits for a text."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        environment = {
            "PATH": os.environ["PATH"],
            "TERM": "dumb",
            "HOME": str(cwd),
            "PS1": PROMPT,
        }
        os.execvpe(command[0], command, environment)
    try:
        for line in lines:
            read_until(terminal, PROMPT)
            os.write(terminal, line.encode() + b"\n")
        read_until(terminal, PROMPT)
        os.write(terminal, keys.encode())
        read_until(terminal, until)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


# Only completion can print the whole words: they are never typed.
def test_tab_in_bash(scripts, folder):
    type_into(
        ["bash", "--norc", "-i"],
        [f"source {scripts / 'bash'}"],
        "ampkit train on\t--se\toptimizer.na\tadamw\t",
        "ampkit train one.toml --set optimizer.name=adamw",
        folder,
    )


def test_tab_in_zsh(scripts, folder):
    type_into(
        ["zsh", "-f", "-i"],
        ["autoload -Uz compinit && compinit -u", f"source {scripts / 'zsh'}"],
        "ampkit train --set optimizer.na\tadamw\t",
        "optimizer.name=adamw",
        folder,
    )


def test_later_keys_in_zsh(scripts, folder):
    type_into(
        ["zsh", "-f", "-i"],
        ["autoload -Uz compinit && compinit -u", f"source {scripts / 'zsh'}"],
        "ampkit train on\t--set train.epochs=3 optimizer.na\tadamw\t --resu\t",
        "optimizer.name=adamw --resume",  # the line is wider than the terminal
        folder,
    )


def test_words_beside_files_in_zsh(scripts, folder):
    type_into(
        ["zsh", "-f", "-i"],
        ["autoload -Uz compinit && compinit -u", f"source {scripts / 'zsh'}"],
        "ampkit ops --policy stri\t",
        "--policy strict",
        folder,
    )


def test_completions_in_fish(scripts, folder):
    def complete(line):
        done = subprocess.run(
            ["fish", "-c", f"source {scripts / 'fish'}; complete -C {shlex.quote(line)}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        return sorted(word.split("\t")[0] for word in done.stdout.splitlines())

    assert complete("ampkit do") == ["doctor"]
    assert complete("ampkit completion ") == ["bash", "fish", "zsh"]
    assert "train.epochs=" in complete("ampkit train --set train.")
    assert complete("ampkit train --set optimizer.name=s") == ["optimizer.name=sgd"]
    assert complete("ampkit train o") == ["one.toml"]
    later = "ampkit train one.toml --set train.epochs=3 "
    assert complete(later + "train.see") == ["train.seed="]
    assert complete(later + "optimizer.name=s") == ["optimizer.name=sgd"]
    assert complete(later + "o") == complete("ampkit train --set o")
    assert "one.toml" not in complete(later)
    assert complete(later + "--resu") == ["--resume"]
    assert complete(later + "--overwrite o") == ["one.toml"]
    assert complete("ampkit ops --policy st") == ["strict"]
    assert complete("ampkit ops --policy on") == ["one.toml"]
    assert "--output" in complete("ampkit report --")
