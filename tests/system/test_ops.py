"""ampkit ops says what runs in what and why: for people, pipes and programs."""

import json
import os
import pty
import re
import subprocess

import pytest
import torch

NAMES = ("pytorch", "strict", "cv", "nlp", "speech")


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture(scope="module")
def ops(program, run):
    """The output of `ampkit ops ARGUMENTS`."""

    def ask(*arguments, status=0):
        return run([program, "ops", *arguments], status=status).stdout

    return ask


@pytest.fixture(scope="module")
def rules(ops):
    """The rule of each listed op under a policy."""

    def ask(*arguments):
        entries = json.loads(ops("--json", *arguments))["ops"]
        return {entry["op"]: entry["rule"] for entry in entries}

    return ask


def test_pipe_gets_one_op_a_line_with_its_rule_and_reason(ops):
    lines = [line.split("\t") for line in ops().splitlines()]
    assert all(len(line) == 3 and all(line) for line in lines)
    found = {name: rule for name, rule, _ in lines}
    assert found["mm"] == "lower-precision"
    assert found["mse_loss"] == "float32"
    assert found["cat"] == "promote"
    assert list(found) == sorted(found)


def test_json_says_the_same(ops):
    for policy in NAMES:
        for device in ("cpu", "cuda"):
            choice = ["--policy", policy, "--device", device]
            data = json.loads(ops("--json", *choice))
            assert (data["policy"], data["device"]) == (policy, device)
            lines = [line.split("\t") for line in ops(*choice).splitlines()]
            entries = [[e["op"], e["rule"], e["reason"]] for e in data["ops"]]
            assert lines == entries


def test_policies_differ_where_they_should(rules):
    assert rules("--device", "cuda")["softmax.int"] == "float32"
    assert "softmax.int" not in rules()
    for policy in ("nlp", "speech", "strict"):
        assert rules("--policy", policy)["softmax.int"] == "float32"
    for policy in ("cv", "nlp", "speech", "strict"):
        for device in ("cpu", "cuda"):
            found = rules("--policy", policy, "--device", device)
            for norm in ("batch_norm", "layer_norm", "group_norm", "rms_norm"):
                assert found[norm] == "float32", (policy, device, norm)
    assert rules("--policy", "speech")["ctc_loss.Tensor"] == "float32"


def test_one_op_and_one_rule(ops, rules):
    assert ops("--op", "mm").startswith("mm\tlower-precision\t")
    assert ops("--op", "softmax", "--device", "cuda").startswith("softmax.int\tfloat32")
    assert ops("--op", "relu") == "relu\tinputs\ton no list\n"
    some = rules("--rule", "promote")
    assert set(some.values()) == {"promote"}
    assert some == {k: v for k, v in rules().items() if v == "promote"}


def test_own_file_is_checked_and_followed(ops, rules, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('preset = "cv"\n[ops.rules]\ngelu = "float32"\n')
    assert rules("--policy", path)["gelu"] == "float32"
    path.write_text('[ops.rules]\nsofmax = "float32"\n')
    message = ops("--policy", path, status=2)
    assert "mine.toml:2: ops.rules.sofmax" in message
    assert "did you mean 'softmax'?" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "sofmax"], "no op 'sofmax'; did you mean 'softmax'?"),
        (["--op", "exp_"], "in-place"),
        (["--policy", "strct"], "unknown policy 'strct', did you mean 'strict'?"),
        (["--policy", "/no/such.toml"], "/no/such.toml: cannot be read"),
        (["--device", "tpu"], "tpu"),
        (["--rule", "fp32"], "fp32"),
        (["--tree", "resnet19"], "one of resnet18, resnet34, resnet50"),
        (["--tree", "/no/such.pt"], "/no/such.pt: not a file of torch.jit.save"),
        (["--tree", "/no/such.toml"], "/no/such.toml: cannot be read"),
        (["--tree", "gpt", "--op", "mm"], "excludes"),
    ],
)
def test_mistakes_are_said_once_with_status_2(arguments, message, ops):
    output = ops(*arguments, status=2)
    assert message in output
    assert output.count("ampkit: error: ") == 1


def test_help_teaches(ops):
    text = ops("--help")
    for word in ("--policy", "--tree", "lower-precision", "Examples", *NAMES):
        assert word in text


def in_terminal(command):
    """What the command prints to a terminal of 80 columns."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    output = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    os.close(master)
    assert process.wait() == 0, output.decode()
    return output.decode().replace("\r\n", "\n")


def test_terminal_gets_groups_within_its_width(program, rules):
    text = in_terminal([program, "ops", "--policy", "nlp"])
    found = rules("--policy", "nlp")
    assert text.startswith("policy nlp on cpu\n")
    for rule in ("lower-precision", "float32", "promote"):
        count = sum(value == rule for value in found.values())
        assert f"\n{rule} ({count}): " in text
    assert all(re.search(rf"^  {re.escape(op)}  ", text, re.M) for op in found)
    assert max(map(len, text.splitlines())) <= 80
    assert "rules for modules; --tree" in text


def rows(text):
    """path: (type, runs in, parameters, by, reason) of a tree in a pipe."""
    lines = [line.split("\t") for line in text.splitlines()]
    return {path: rest for path, *rest in lines}


def test_tree_of_a_network_of_the_zoo(program, ops):
    tree = rows(ops("--tree", "gpt", "--policy", "nlp"))
    assert tree["h.0.mlp.c_proj"][:4] == [
        *("Linear", "float32", "16448", "'**.mlp.c_proj'")
    ]
    assert "the residual" in tree["h.0.mlp.c_proj"][4]
    assert tree["h.0.mlp.c_fc"][1] == "16 bits"
    assert tree["h.0.ln_1"][1] == "float32"
    text = in_terminal([program, "ops", "--tree", "gpt", "--policy", "nlp"])
    assert "'**.mlp.c_proj' = float32: 2 of the modules" in text
    idle = " ".join(text[text.index("without effect here: ") :].split())
    assert "'**.fc2'" in idle and "c_proj" not in idle
    assert max(map(len, text.splitlines())) <= 80


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc2 = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.fc2(self.norm(self.conv(x)).mean([2, 3]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tree_of_a_torchscript_file(ops, tmp_path):
    path = tmp_path / "model.pt"
    torch.jit.script(Small()).save(str(path))
    plain = rows(ops("--tree", path))
    assert {name: row[:2] for name, row in plain.items()} == {
        "conv": ["Conv2d", "16 bits"],
        "norm": ["BatchNorm2d", "inputs'"],
        "fc2": ["Linear", "16 bits"],
    }
    nlp = json.loads(ops("--tree", path, "--policy", "nlp", "--json"))
    assert [row["runs_in"] for row in nlp["modules"]] == [
        *("16 bits", "float32", "float32")
    ]
    used = {rule["pattern"]: rule["modules"] for rule in nlp["rules"]}
    assert used["**.fc2"] == 1 and sum(used.values()) == 1

    state = tmp_path / "state.pt"
    torch.save(Small().state_dict(), state)
    assert "not a file of torch.jit.save" in ops("--tree", state, status=2)


def test_tree_of_a_configuration_has_its_policy(ops, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('[precision]\npolicy = "cv"\n')
    assert rows(ops("--tree", config))["bn1"][:2] == ["BatchNorm2d", "float32"]
    plain = rows(ops("--tree", config, "--policy", "pytorch"))
    assert plain["bn1"][:2] == ["BatchNorm2d", "inputs'"]


def test_pattern_that_finds_nothing_is_an_error(ops, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[modules.rules]\n"layer1.0.conv9" = "float32"\n')
    message = ops("--tree", "resnet18", "--policy", path, status=2)
    assert "'layer1.0.conv9' matches no module" in message
    assert "did you mean 'layer1.0.conv" in message
