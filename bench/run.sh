#!/usr/bin/env bash
# Runs the benchmarks: bench/run.sh --help, docs/benchmarks.md.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

PYTHON=$(test_python)
[ -x "$PYTHON" ] || die "no Python with torch at $PYTHON; run scripts/setup.sh"
exec "$PYTHON" "$ROOT/bench/run.py" "$@"
