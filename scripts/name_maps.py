"""What the head of a tagger makes of states that enter each block, as they are and by the map of the block.

Of a supernet that ``ldsearch compress`` fitted: the share of real tokens whose tag is the full model's, on
the rows that choose, to which nothing was fitted. The last line is one JSON object.

    python scripts/name_maps.py --run runs/names-compressed
"""

import argparse
import json
from pathlib import Path

import torch

from ldsearch.bench import Bench
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.left_behind import left_behind
from ldsearch.supernet.tokens import State
from ldsearch.training.saliency import ROWS, recorded


@torch.no_grad()
def shares(bench: Bench) -> list[dict[str, float]]:
    """Of each block: tags that are the full model's by states as they are, and mapped."""
    supernet = bench.supernet.eval()
    assert supernet.pipeline is not None
    encoded, collate = bench.evaluator.encoded, bench.task.collate(bench.tokenizer, None)
    order = encoded.lengths.argsort(kind="stable").tolist()
    alike = torch.zeros(supernet.blocks, 2)
    tokens = 0
    for start in range(0, len(order), ROWS):
        batch = collate([encoded[row] for row in order[start : start + ROWS]])
        mask = batch["attention_mask"]
        real = mask.bool()
        with recorded(supernet) as seen:
            own = logits_of(supernet(supernet.inputs(batch), supernet.full)).argmax(dim=-1)
        tokens += int(real.sum())
        for block, (layer, (entered, _, _)) in enumerate(
            zip(supernet.layers_of("encoder"), seen, strict=True)
        ):
            for way, hidden in enumerate((entered, left_behind(layer, entered))):
                tags = logits_of(supernet.pipeline.head(State(hidden, real), mask)).argmax(dim=-1)
                alike[block, way] += (tags == own)[real].sum()
    named = ("as it is", "mapped")
    return [dict(zip(named, row, strict=True)) for row in (alike / tokens).tolist()]


def main() -> None:
    """Print a row a block."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of ldsearch compress")
    options = parser.parse_args()
    found = shares(Bench.open(options.run / "supernet", runs=options.run))
    print(json.dumps({"blocks": [{way: round(one, 4) for way, one in row.items()} for row in found]}))


if __name__ == "__main__":
    main()
