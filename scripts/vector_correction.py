"""Worth and cost of the correction of means, by shape and share of tokens.

Of embeddings that ``ldsearch compress`` fitted: cosines to the full model's vectors on the rows that choose,
to which nothing was fitted, with and without it, and by one that is fitted to sub-networks of late drops too.
Then milliseconds, timed in turn. The last line is one JSON object.

    python scripts/vector_correction.py --run runs/embeddings/stsb
"""

import argparse
import json
from pathlib import Path

import numpy as np

from ldsearch.bench import Bench
from ldsearch.evaluation import Evaluator
from ldsearch.latency.clock import clock_of_models
from ldsearch.latency.measure import forward_run, random_cell
from ldsearch.latency.runtimes import RUNTIMES
from ldsearch.space.lengths import Shape, draw_shares
from ldsearch.subnet import Subnet
from ldsearch.supernet.correction import CORRECTION
from ldsearch.supernet.saliency import score_weights
from ldsearch.training import correction
from ldsearch.training.saliency import fit_saliency
from ldsearch.work.progress import NO_PROGRESS

SHARES = (0.7, 0.5)  # of all blocks' tokens


def cosines(bench: Bench) -> dict[str, list[float]]:
    """Mean cosine of each shape at each share."""
    supernet, reference = bench.supernet.eval(), bench.record.reference
    encoded = bench.task.encode("search", bench.tokenizer, reference)
    score = Evaluator(supernet, bench.task, encoded, split="search", tokenizer=bench.tokenizer)
    subnets = [
        Subnet.of_encoder(range(supernet.blocks), lengths, reference)
        for shape in Shape
        for share in SHARES
        for lengths in [
            draw_shares(reference, supernet.blocks, [shape], (share, share), np.random.default_rng(0))
        ]
    ]
    values = [round(trial.score.value, 4) for trial in score(subnets)]
    return {
        shape.name.lower(): values[at : at + len(SHARES)]
        for shape, at in zip(Shape, range(0, len(values), len(SHARES)), strict=True)
    }


def milliseconds(bench: Bench, runtime: str) -> dict[str, dict[str, float]]:
    """Medians at the mean length of the full model, and of half of the tokens, with and without it."""
    supernet, model, reference = bench.supernet.eval(), bench.supernet.model, bench.record.reference
    length = max(1, round(bench.record.lengths_seen.mean_length))
    half = Subnet.of_encoder(range(supernet.blocks), [reference // 2] * supernet.blocks, reference)
    weights = model._buffers.pop(CORRECTION)
    forwards = {
        "full": RUNTIMES[runtime](supernet, supernet.full),
        "kept alone": RUNTIMES[runtime](supernet, half),
    }
    model.register_buffer(CORRECTION, weights)
    forwards["corrected"] = RUNTIMES[runtime](supernet, half)
    found = {}
    for batch in (1, 8):
        cell = random_cell(supernet, batch, length)
        timed = clock_of_models(model.device)(
            [forward_run(one, cell) for one in forwards.values()], NO_PROGRESS
        )
        medians = (round(1e3 * timing.median, 3) for timing in timed.timings)
        found[f"{batch}x{length}"] = dict(zip(forwards, medians, strict=True))
    return found


def main() -> None:
    """Print a table, and the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of ldsearch compress")
    parser.add_argument("--runtime", default="openvino-int8", help="in which it is timed")
    options = parser.parse_args()
    bench = Bench.open(options.run / "supernet", runs=options.run)
    rows = bench.task.encode("train", bench.tokenizer, bench.record.reference)
    model = bench.supernet.model
    own = {name: weights.clone() for name, weights in score_weights(model).items()}
    taken = milliseconds(bench, options.runtime)
    corrected = cosines(bench)
    getattr(model, CORRECTION).zero_()
    found = {"kept alone": cosines(bench), "corrected": corrected}
    correction.SHAPES = tuple(Shape)
    fit_saliency(bench.supernet, bench.task, rows, bench.tokenizer, 0)
    # Its token score may have been fitted in bf16.
    model.load_state_dict(
        {name: weights for name, weights in own.items() if name != CORRECTION}, strict=False
    )
    found["by late drops too"] = cosines(bench)
    print(f"| | {' | '.join(f'{name}, {SHARES[0]} and {SHARES[1]}' for name in found['corrected'])} |")
    print("|---" * (1 + len(Shape)) + "|")
    for name, own in found.items():
        print(f"| {name} | {' | '.join(f'{one:.4f}, {other:.4f}' for one, other in own.values())} |")
    print(json.dumps({"rows fitted": len(rows), "shares": SHARES, "ms": taken, **found}))


if __name__ == "__main__":
    main()
