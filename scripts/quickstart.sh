#!/usr/bin/env bash
# From a fresh clone to a trained network and its report.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/quickstart.sh [--set KEY=VALUE]...

Installs what is missing (scripts/setup.sh), builds the ampkit command in
build/release, trains a residual network on Fashion-MNIST in fp16 with dynamic
loss scaling (configs/fashion-resnet.toml), and says where the report is. Each
call trains anew, in a folder of its own: runs/quickstart-1, runs/quickstart-2.

  --set KEY=VALUE  change a key of the configuration, as ampkit train does;
                   e.g. --set train.epochs=1
  --help           this text
TEXT
}

OVERRIDES=()
while [ $# -gt 0 ]; do
  case $1 in
    --set)
      [ $# -ge 2 ] || die "--set needs KEY=VALUE"
      OVERRIDES+=(--set "$2")
      shift
      ;;
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

trap 'echo "interrupted" >&2; exit 130' INT TERM

cd "$ROOT"
scripts/setup.sh

say "Building the ampkit command"
# In a build folder that is already there, the tests stay as they are.
options=()
[ -f build/release/CMakeCache.txt ] ||
  options=(-DAMPKIT_BUILD_TESTS=OFF -DAMPKIT_BUILD_BENCH=OFF)
mkdir -p build
cmake --preset release "${options[@]}" >build/configure.log 2>&1 || {
  cat build/configure.log >&2
  die "configuring failed"
}
cmake --build build/release --target ampkit_app

number=1
while [ -e "runs/quickstart-$number" ]; do number=$((number + 1)); done

run="runs/quickstart-$number"

say "Training: configs/fashion-resnet.toml in $run"
build/release/apps/ampkit/ampkit train configs/fashion-resnet.toml \
  "${OVERRIDES[@]}" --output "$run"
printf '\nThe report: file://%s/report.html\n' "$ROOT/$run"
