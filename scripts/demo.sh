#!/usr/bin/env bash
# The whole path on the embedded default: train a supernet, search it, look at it, export, use it.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1

# bf16 pays only where the processor multiplies it in hardware.
fast=()
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null; then fast=(--bf16); fi

if [ ! -f runs/demo/supernet.json ]; then
  ldsearch train-supernet --name demo ${fast[@]+"${fast[@]}"}
fi
ldsearch info runs/demo
ldsearch evolve --supernet runs/demo --budget 0.4 --evaluations 30
ldsearch evaluate runs/demo-evolve
rm -rf exported/demo
ldsearch export runs/demo-evolve exported/demo
python - <<'PY'
import ldsearch
from transformers import AutoTokenizer

model, tokenizer = ldsearch.load("exported/demo"), AutoTokenizer.from_pretrained("exported/demo")
text = "Compute the eigenvalues of a large sparse symmetric matrix."
probabilities = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
best = probabilities.topk(3)
names = [f"{model.model.config.id2label[int(i)]} {p:.2f}" for p, i in zip(best.values, best.indices)]
print(f"{text!r}: {', '.join(names)}")
PY
