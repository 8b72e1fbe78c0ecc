#!/usr/bin/env bash
# Sets up, builds and runs the tests. The last line is `N passed, N failed`.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Usage: scripts/test.sh [--quick|--long]

Installs what is missing (scripts/setup.sh --tests), builds everything in
build/release and runs every test: C++ (ctest), the comparisons with Python's
PyTorch (tests/oracle) and whole programs (tests/system). Ends with a line
`N passed, N failed`; the exit status is 0 only if nothing failed.

  --quick  leaves out the tests marked slow: under 5 minutes, for the edit loop
  --long   the large counts (kill trials, fuzzing, random sequences), the C++
           tests under the sanitizers, and everything against a CUDA LibTorch
  --help   this text
TEXT
}

MODE=default
case ${1:-} in
  "") ;;
  --quick) MODE=quick ;;
  --long) MODE=long ;;
  --help | -h)
    usage
    exit 0
    ;;
  *)
    usage >&2
    die "unknown option $1"
    ;;
esac

trap 'echo "interrupted" >&2; exit 130' INT TERM

RESULTS="$BUILD/test-results"
FOLDERS=("$RESULTS")

finish() { exec python3 "$ROOT/scripts/summarize_tests.py" "${FOLDERS[@]}"; }

# step NAME COMMAND...: runs it and notes how it ended.
step() {
  local code=0
  say "$1"
  "${@:2}" || code=$?
  echo "$1 $code" >>"$RESULTS/steps.txt"
  return $code
}

# required NAME COMMAND...: nothing after it makes sense if it fails.
required() { step "$@" || finish; }

configure_and_build() {
  local preset=$1
  # Stated, because quickstart.sh may have configured without them.
  cmake --preset "$preset" -S "$ROOT" -DAMPKIT_BUILD_TESTS=ON \
    -DAMPKIT_BUILD_EXAMPLES=ON -DAMPKIT_BUILD_BENCH=ON &&
    cmake --build "$ROOT/build/$preset"
}

# python_tests FOLDER
python_tests() {
  local marker=()
  [ "$MODE" != quick ] || marker=(-m "not slow")
  (cd "$ROOT" && "$PYTHON" -m pytest -q "${marker[@]}" "tests/$1" \
    --junitxml "$RESULTS/pytest-$1.xml")
}

sanitizer_tests() {
  local build="$ROOT/build/asan"
  rm -rf "$build/test-results"
  FOLDERS+=("$build/test-results")
  configure_and_build asan && cpp_tests "$build"
}

cuda_tests() {
  local build="$ROOT/build/cuda"
  rm -rf "$build/test-results"
  FOLDERS+=("$build/test-results")
  "$ROOT/scripts/check_cuda_build.sh" --no-tests && cpp_tests "$build"
}

rm -rf "$RESULTS"
mkdir -p "$RESULTS"
[ "$MODE" != long ] || export AMPKIT_TEST_LONG=1

required setup "$ROOT/scripts/setup.sh" --tests
PYTHON=$(test_python)
required build configure_and_build release
step cpp-tests cpp_tests "$BUILD" || true
step pytest-oracle python_tests oracle || true
step pytest-system python_tests system || true
if [ "$MODE" = long ]; then
  step sanitizers sanitizer_tests || true
  step cuda cuda_tests || true
fi
finish
