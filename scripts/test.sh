#!/usr/bin/env bash
# Lint, types, tests; with --all the tests marked slow too, as CI runs them; with --only-tests no lint and no
# types, which are those of the tested versions.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
if [ "${1:-}" = --only-tests ]; then
  shift
else
  .venv/bin/ruff format --check .
  .venv/bin/ruff check .
  .venv/bin/mypy
fi
selection=(-m "not slow")
if [ "${1:-}" = --all ]; then
  selection=()
  shift
fi
.venv/bin/python -m pytest -n 2 --dist worksteal --durations=5 "${selection[@]}" "$@"
