#!/usr/bin/env bash
# Installs what building ampkit needs and this machine lacks. A second run
# finds everything in place and needs no network.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/setup.sh [--tests] [--skip-packages]

Installs what is missing to build ampkit: Debian packages (through apt, as root
or with a sudo that asks for no password) and LibTorch.

  --tests          also what only the tests need
  --skip-packages  do not look at Debian packages: they were installed otherwise
  --help           this text

LibTorch is taken from the first of these that has one:
  1. Torch_DIR, Torch_ROOT or CMAKE_PREFIX_PATH in the environment
  2. the active Python environment (VIRTUAL_ENV, CONDA_PREFIX)
  3. .venv in this folder, which this script makes and fills

AMPKIT_TORCH_INDEX sets the package index that is asked, besides pip's own, for
the torch of .venv; empty: pip's own only. The default is PyTorch's index of
CPU packages, where it answers: PyPI's own package brings CUDA, several GB.
TEXT
}

# PACKAGE or PACKAGE:COMMAND; having the command is as good as the package.
BUILD_PACKAGES=(
  cmake:cmake ninja-build:ninja g++:c++ ccache:ccache
  libcli11-dev libfmt-dev libhwy-dev libjpeg62-turbo-dev libpng-dev
  libprotozero-dev libtomlplusplus-dev libxxhash-dev nlohmann-json3-dev
  zlib1g-dev libjs-chart.js dataset-fashion-mnist
)
TEST_PACKAGES=(
  libgtest-dev libgmock-dev chromium:chromium fonts-dejavu-core
  clang-format-19:clang-format-19 clang-tidy-19:clang-tidy-19
  shellcheck:shellcheck git:git zsh:zsh fish:fish openmpi-bin:mpirun
)

TESTS=no
PACKAGES=yes
while [ $# -gt 0 ]; do
  case $1 in
    --tests) TESTS=yes ;;
    --skip-packages) PACKAGES=no ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      die "unknown option $1"
      ;;
  esac
  shift
done

python_has_venv() {
  python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' \
    2>/dev/null
}

cmake_is_recent() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n '1s/.*version //p')
  [ -n "$version" ] && version_at_least "$version" 3.25
}

is_installed() {
  dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null |
    grep -qx installed
}

# Prints the packages that are missing, one a line.
missing_packages() {
  local entry package command
  for entry in "$@"; do
    package=${entry%%:*}
    command=${entry#"$package"}
    command=${command#:}
    if [ "$package" = cmake ]; then
      cmake_is_recent || echo cmake
    elif [ -n "$command" ] && command -v "$command" >/dev/null; then
      continue
    elif ! is_installed "$package"; then
      echo "$package"
    fi
  done
  python_has_venv || printf '%s\n' python3 python3-venv
}

install_packages() {
  local missing=() sudo=()
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      die "these Debian packages are missing, and installing them needs root:
  sudo apt-get install --no-install-recommends ${missing[*]}
Run that, then this script again."
    fi
    sudo=(sudo)
  fi
  say "Installing Debian packages: ${missing[*]}"
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
}

set_up_packages() {
  local wanted=("${BUILD_PACKAGES[@]}")
  [ "$TESTS" = no ] || wanted+=("${TEST_PACKAGES[@]}")
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    die "this system has no apt. Install what these Debian packages hold:
  ${wanted[*]%%:*} python3 (3.10 or newer, with venv)
Then run this script with --skip-packages."
  fi
  install_packages "${wanted[@]}"
}

# An index that does not answer would cost pip minutes of retries.
torch_index() {
  local index=${AMPKIT_TORCH_INDEX-https://download.pytorch.org/whl/cpu}
  if [ -n "$index" ] && "$ROOT/.venv/bin/python" - "$index" 2>/dev/null <<'CODE'; then
import sys
import urllib.request

urllib.request.urlopen(sys.argv[1] + "/torch/", timeout=5)
CODE
    echo "--extra-index-url=$index"
  fi
}

make_local_environment() {
  "$ROOT/.venv/bin/python" -c '' 2>/dev/null && return
  python_has_venv || die "needs Python 3.10 or newer with venv, found \
$(python3 --version 2>&1 || true); on Debian: apt-get install python3-venv"
  say "Making the Python environment .venv"
  python3 -m venv --clear "$ROOT/.venv"
}

pip_install() { "$1" -m pip install --disable-pip-version-check -q "${@:2}"; }

install_local_torch() {
  local index
  make_local_environment
  index=$(torch_index)
  say "Installing torch $TORCH_INSTALLED into .venv"
  # Unquoted: no index is no argument.
  # shellcheck disable=SC2086
  pip_install "$ROOT/.venv/bin/python" $index "torch==$TORCH_INSTALLED"
}

set_up_torch() {
  local version
  find_torch
  if [ -z "$TORCH_CONFIG" ]; then
    install_local_torch
    find_torch
  fi
  version=$(torch_version "$TORCH_CONFIG")
  if version_at_least "$version" "$TORCH_MINIMUM"; then
    TORCH_VERSION=$version
    return
  fi
  case $TORCH_ORIGIN in
    given) die "ampkit needs LibTorch $TORCH_MINIMUM or newer, found $version \
at $TORCH_CONFIG (from Torch_DIR, Torch_ROOT or CMAKE_PREFIX_PATH)" ;;
    environment) die "ampkit needs LibTorch $TORCH_MINIMUM or newer, found \
$version at $TORCH_CONFIG; upgrade it (pip install --upgrade torch), or \
deactivate that environment, and this script makes one with torch \
$TORCH_INSTALLED" ;;
    local)
      install_local_torch
      set_up_torch
      ;;
  esac
}

# Exits 0 if every pinned requirement is there in that version.
has_requirements() {
  "$1" - "$ROOT/scripts/requirements-test.txt" <<'CODE' 2>/dev/null
import importlib.metadata
import sys

for line in open(sys.argv[1]):
    if "==" in line and not line.startswith("#"):
        name, version = line.strip().split("==")
        if importlib.metadata.version(name) != version:
            sys.exit(1)
importlib.metadata.version("torch")
CODE
}

# The tests run real PyTorch: the one that is built against, where that is a
# Python package.
set_up_test_python() {
  local python
  python=$(test_python)
  if [ "$python" = "$ROOT/.venv/bin/python" ] &&
    [ -z "$(torch_config_in "$ROOT/.venv")" ]; then
    install_local_torch
  fi
  has_requirements "$python" && return
  say "Installing the tests' Python packages into ${python%/bin/python}"
  pip_install "$python" -r "$ROOT/scripts/requirements-test.txt"
}

[ "$PACKAGES" = no ] || set_up_packages
set_up_torch
[ "$TESTS" = no ] || set_up_test_python
echo "setup: ready, LibTorch $TORCH_VERSION in ${TORCH_CONFIG%/share/cmake/Torch}"
