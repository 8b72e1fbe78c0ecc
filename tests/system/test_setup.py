"""scripts/setup.sh, and how CMake finds LibTorch.

The machines that the scripts meet are made of small fakes: a folder of
programs for PATH, a folder that looks like LibTorch of some version.
"""

import os
import pathlib
import shutil
import stat

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETUP = ROOT / "scripts" / "setup.sh"


def make_program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def make_torch(folder, version):
    """A folder that find_package(Torch) takes for LibTorch `version`."""
    config = folder / "share" / "cmake" / "Torch"
    config.mkdir(parents=True)
    (config / "TorchConfig.cmake").write_text("set(TORCH_FOUND TRUE)\n")
    (config / "TorchConfigVersion.cmake").write_text(
        f'set(PACKAGE_VERSION "{version}")\n'
        "if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)\n"
        "  set(PACKAGE_VERSION_COMPATIBLE FALSE)\n"
        "else()\n"
        "  set(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
        "endif()\n"
    )
    return folder


def make_environment(folder, version):
    """A Python environment with torch `version`."""
    make_torch(folder / "lib" / "python3.11" / "site-packages" / "torch", version)
    return folder


@pytest.fixture
def clean_env():
    """The environment without anything that leads to a LibTorch."""
    names = ("Torch_DIR", "Torch_ROOT", "CMAKE_PREFIX_PATH")
    names += ("VIRTUAL_ENV", "CONDA_PREFIX")
    return {key: value for key, value in os.environ.items() if key not in names}


# --------------------------------------------------------------- setup.sh


def test_setup_finds_everything_the_second_time(run, clean_env):
    """The tests run after a set-up: this is a second one, with no network."""
    offline = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = run([SETUP, "--tests"], env=clean_env | offline, timeout=60)
    assert "setup: ready, LibTorch" in done.stdout
    assert "Installing" not in done.stdout


def test_setup_without_root_says_what_to_install(run, clean_env, tmp_path):
    make_program(tmp_path, "dpkg-query", "exit 1")
    make_program(tmp_path, "id", "echo 1000")
    make_program(tmp_path, "sudo", "exit 1")
    path = f"{tmp_path}:{clean_env['PATH']}"
    done = run([SETUP], status=1, env=clean_env | {"PATH": path})
    assert "sudo apt-get install --no-install-recommends" in done.stdout
    assert "libtomlplusplus-dev" in done.stdout


def test_setup_without_apt_lists_the_packages(run, clean_env, tmp_path):
    for name in ("bash", "dirname", "basename", "sed", "env"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run([SETUP], status=1, env=clean_env | {"PATH": str(tmp_path)})
    assert "this system has no apt" in done.stdout
    assert "libhwy-dev" in done.stdout
    assert "--skip-packages" in done.stdout


def test_setup_takes_the_given_libtorch_first(run, clean_env, tmp_path):
    given = make_torch(tmp_path / "given", "2.15.0")
    active = make_environment(tmp_path / "active", "2.14.0")
    env = clean_env | {"CMAKE_PREFIX_PATH": str(given), "VIRTUAL_ENV": str(active)}
    done = run([SETUP, "--skip-packages"], env=env)
    assert f"LibTorch 2.15.0 in {given}" in done.stdout


def test_setup_takes_the_active_environment_before_its_own(run, clean_env, tmp_path):
    active = make_environment(tmp_path, "2.14.0")
    env = clean_env | {"VIRTUAL_ENV": str(active)}
    done = run([SETUP, "--skip-packages"], env=env)
    assert f"LibTorch 2.14.0 in {active}" in done.stdout


def test_setup_passes_over_an_environment_without_torch(run, clean_env, tmp_path):
    env = clean_env | {"VIRTUAL_ENV": str(tmp_path)}
    done = run([SETUP, "--skip-packages"], env=env)
    assert f"in {ROOT}/.venv" in done.stdout


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CMAKE_PREFIX_PATH"])
def test_setup_refuses_an_old_libtorch(run, clean_env, tmp_path, variable):
    folder = tmp_path / "old"
    make = make_environment if variable == "VIRTUAL_ENV" else make_torch
    env = clean_env | {variable: str(make(folder, "2.5.1"))}
    done = run([SETUP, "--skip-packages"], status=1, env=env)
    assert "needs LibTorch 2.13 or newer, found 2.5.1 at" in done.stdout


@pytest.mark.parametrize("script", ["setup.sh", "test.sh", "quickstart.sh"])
def test_scripts_refuse_an_unknown_option(run, script):
    done = run([ROOT / "scripts" / script, "--fast"], status=1)
    assert "unknown option --fast" in done.stdout
    assert "Usage:" in done.stdout


# ------------------------------------------------- cmake/AmpkitTorch.cmake


@pytest.fixture
def find_torch(run, tmp_path):
    """Configures a project that only looks for LibTorch."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "project(lookup LANGUAGES NONE)\n"
        f'include("{ROOT}/cmake/AmpkitTorch.cmake")\n'
        'message(STATUS "taken: ${Torch_DIR}")\n'
    )

    def configure(env, status=0):
        command = ["cmake", "-S", project, "-B", project / "build"]
        return run(command, status=status, env=env).stdout

    return configure


def test_cmake_takes_the_given_libtorch_first(find_torch, clean_env, tmp_path):
    given = make_torch(tmp_path / "given", "2.15.0")
    active = make_environment(tmp_path / "active", "2.14.0")
    env = clean_env | {"CMAKE_PREFIX_PATH": str(given), "VIRTUAL_ENV": str(active)}
    assert f"taken: {given}/share" in find_torch(env)


def test_cmake_takes_the_active_environment_next(find_torch, clean_env, tmp_path):
    active = make_environment(tmp_path / "active", "2.14.0")
    env = clean_env | {"VIRTUAL_ENV": str(active)}
    assert f"taken: {active}/lib" in find_torch(env)


def test_cmake_refuses_an_old_libtorch(find_torch, clean_env, tmp_path):
    active = make_environment(tmp_path / "active", "2.5.1")
    text = find_torch(clean_env | {"VIRTUAL_ENV": str(active)}, status=1)
    assert "ampkit needs LibTorch 2.13 or newer, found 2.5.1" in " ".join(text.split())
    assert "scripts/setup.sh" in text


def test_cmake_without_libtorch_says_how_to_give_one(find_torch, clean_env):
    text = find_torch(clean_env, status=1)
    assert "LibTorch was not found" in text
    assert "-DCMAKE_PREFIX_PATH" in text
