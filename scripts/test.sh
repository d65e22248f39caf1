#!/usr/bin/env bash
# Lint, types, tests: what CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
export HF_HUB_OFFLINE=1
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/python -m pytest -n 2 --durations=5 "$@"
