"""What a user gets: the installed package, add_subdirectory, the README."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONSUMER = ROOT / "tests" / "consumer"


def cached(build, name):
    """The value of a variable in a build folder's CMake cache."""
    text = (build / "CMakeCache.txt").read_text()
    return re.search(rf"^{name}:\w+=(.*)$", text, re.M)[1]


@pytest.fixture(scope="session")
def torch_dir(build):
    """The folder of the TorchConfig.cmake that the build under test uses."""
    return pathlib.Path(cached(build, "Torch_DIR"))


@pytest.fixture(scope="session")
def installed(run, build, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("installed")
    run(["cmake", "--install", build, "--prefix", prefix])
    return prefix


@pytest.fixture
def compile_project(run, torch_dir, installed, tmp_path):
    """Configures and builds a project against the installed package."""

    def compile_source(source, *options, build=tmp_path / "build"):
        run(
            ["cmake", "-S", source, "-B", build, "-G", "Ninja"]
            + [f"-DCMAKE_PREFIX_PATH={installed}", f"-DTorch_DIR={torch_dir}"]
            + ["-DCMAKE_BUILD_TYPE=Release", *options]
        )
        run(["cmake", "--build", build], timeout=1800)
        return build

    return compile_source


def test_headers_are_installed_as_they_are(installed):
    def headers(folder):
        return {p.relative_to(folder) for p in folder.rglob("*.h")}

    wanted = headers(ROOT / "include") | headers(ROOT / "zoo" / "include")
    wanted.add(pathlib.Path("ampkit/version.h"))
    assert headers(installed / "include") == wanted


def test_package_files_name_no_folder_of_this_machine(installed, build, torch_dir):
    private = {ROOT, build, torch_dir.parents[3], pathlib.Path(sys.prefix)}
    files = list(installed.rglob("*.cmake"))
    assert files
    for path in files:
        text = path.read_text()
        for folder in private:
            assert str(folder) not in text, f"{path.name} holds {folder}"


def cxx11_symbols(library, *options):
    """Mangled names in which std::string or std::list has the new ABI."""
    done = subprocess.run(
        ["nm", *options, library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in done.stdout.splitlines() if line.strip()}
    return {name for name in names if "cxx11" in name}


@pytest.mark.parametrize("library", ["src/libampkit.a", "zoo/libampkit_zoo.a"])
def test_no_symbol_of_libtorch_is_undefined_for_its_string_abi(
    build, torch_dir, library
):
    exported = set()
    for path in torch_dir.parents[2].glob("lib/lib*.so"):
        exported |= cxx11_symbols(path, "--dynamic", "--defined-only")
    wanted = cxx11_symbols(build / library, "--undefined-only")
    of_libtorch = {
        name for name in wanted if re.match(r"_ZNK?(3c10|2at|5torch)", name)
    }
    assert len(of_libtorch) > 5  # strings do pass between the two
    assert of_libtorch <= exported


def test_libtorch_exports_no_googletest_that_would_replace_ours(torch_dir):
    libraries = list(torch_dir.parents[2].glob("lib/lib*.so"))
    assert libraries
    for path in libraries:
        done = subprocess.run(
            ["nm", "--dynamic", "--defined-only", path],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "_ZN7testing" not in done.stdout, path


def test_find_package_consumer_runs(compile_project, run):
    built = compile_project(CONSUMER)
    assert run([built / "consumer"]).stdout.startswith("ampkit 0.1.")
    assert run([built / "zoo_consumer"]).stdout.startswith("zoo of ampkit 0.1.")


def test_package_refuses_another_libtorch(run, installed, tmp_path):
    config = tmp_path / "torch" / "share" / "cmake" / "Torch"
    config.mkdir(parents=True)
    (config / "TorchConfig.cmake").write_text("set(TORCH_FOUND TRUE)\n")
    (config / "TorchConfigVersion.cmake").write_text(
        'set(PACKAGE_VERSION "99.1.0")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n'
    )
    done = run(
        ["cmake", "-S", CONSUMER, "-B", tmp_path / "build"]
        + [f"-DCMAKE_PREFIX_PATH={installed}", f"-DTorch_DIR={config}"],
        status=1,
    )
    text = " ".join(done.stdout.split())
    assert "this ampkit was built with LibTorch" in text
    assert "99.1.0 was found at" in text


@pytest.mark.slow
def test_shared_subdirectory_consumer_runs(run, torch_dir, long_run):
    """Builds the library again, shared and in haste; it stays for next time."""
    if not long_run:
        pytest.skip("needs AMPKIT_TEST_LONG=1: a second build of everything")
    build = ROOT / "build" / "consumer-shared"
    run(
        ["cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja"]
        + [f"-DCONSUMER_SUBDIRECTORY={ROOT}", f"-DTorch_DIR={torch_dir}"]
        + ["-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=Debug"]
        + ["-DCMAKE_CXX_FLAGS_DEBUG=-O0"]
    )
    run(["cmake", "--build", build], timeout=1800)
    assert (build / "ampkit" / "src" / "libampkit.so").exists()
    assert run([build / "consumer"]).stdout.startswith("ampkit 0.1.")
    assert run([build / "zoo_consumer"]).stdout.startswith("zoo of ampkit 0.1.")
    assert "tests" not in os.listdir(build / "ampkit")


@pytest.mark.slow
def test_each_public_header_compiles_on_its_own(run, build):
    command = ["cmake", "--build", build, "--target"]
    run([*command, "all_verify_interface_header_sets"], timeout=1800)


def code_block(language):
    """The first block of that language in the README."""
    text = (ROOT / "README.md").read_text()
    return re.search(rf"^```{language}\n(.*?)^```", text, re.M | re.S)[1]


@pytest.mark.slow
def test_readme_example_trains(compile_project, run, tmp_path):
    example = code_block("cpp")
    assert len(example.splitlines()) <= 25
    (tmp_path / "main.cpp").write_text(example)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "project(readme LANGUAGES CXX)\n"
        "add_executable(my_trainer main.cpp)\n" + code_block("cmake")
    )
    built = compile_project(tmp_path)
    lines = run([built / "my_trainer"]).stdout.splitlines()
    losses = [float(line.split()[0]) for line in lines]
    assert len(losses) == 4
    assert losses[-1] < 0.5 * losses[0]
