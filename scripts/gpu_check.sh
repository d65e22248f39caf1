#!/usr/bin/env bash
# Ten minutes on a GPU: train, torchrun, evolve, evaluate, profile, export; the last line is one JSON object.
# A folder as argument keeps the runs; --anywhere tries the script itself on a processor.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
exec .venv/bin/python scripts/gpu_check.py "$@"
