"""What a public header declares, a shared library gives.

Everything is compiled with hidden visibility, so that a function without
AMPKIT_API links only where the library is static. The static libraries keep
the visibility of each symbol, and need no second build.
"""

import re
import shutil
import subprocess

import pytest

LIBRARIES = ["src/libampkit.a", "zoo/libampkit_zoo.a"]


def public_headers(root):
    """The text of each, without comments."""
    paths = [*(root / "include").rglob("*.h"), *(root / "zoo/include").rglob("*.h")]
    return [re.sub(r"//.*", "", path.read_text()) for path in paths]


def hidden_functions(library):
    done = subprocess.run(
        ["readelf", "-sW", "--demangle", library],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        words = line.split(None, 7)
        if words[3:6] == ["FUNC", "GLOBAL", "HIDDEN"] and words[6] != "UND":
            yield words[7]


def declares(header, scope, name):
    """Whether `header` declares the function `name` of a class or namespace."""
    kind = scope.rpartition("::")[2]
    if re.search(rf"\b(class|struct) (AMPKIT_API )?{kind}\b[^;{{]*{{", header):
        return re.search(rf"\b{name}\(", header) is not None
    return f"namespace {scope} {{" in header and bool(
        re.search(rf"^[A-Za-z][^\n;{{}}()]*(?<![\w.>:]){name}\(", header, re.M)
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_public_function_is_exported(root, build, library):
    assert shutil.which("readelf"), "readelf is part of binutils"
    headers = public_headers(root)
    found = set()
    for symbol in hidden_functions(build / library):
        qualified, _, parameters = symbol.partition("(")
        scope, _, name = qualified.rpartition("::")
        name = re.escape(name.partition("[")[0])
        # An overload of ours may take a type that no public header knows.
        types = set(re.findall(r"\bampkit(?:::\w+)*::(\w+)", parameters))
        for header in headers:
            words = set(re.findall(r"\w+", header))
            if types <= words and declares(header, scope, name):
                found.add(symbol)
    assert found == set()
