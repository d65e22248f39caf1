#!/usr/bin/env bash
# Lint, types, tests; with --all the tests marked slow too, as CI runs them.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
export HF_HUB_OFFLINE=1
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
selection=(-m "not slow")
if [ "${1:-}" = --all ]; then
  selection=()
  shift
fi
.venv/bin/python -m pytest -n 2 --durations=5 "${selection[@]}" "$@"
