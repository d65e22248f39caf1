"""Which tokens should stay? A model that was never trained for it, cut alike by different token scores.

    python scripts/token_scores.py runs/recipe/rung-0.7/plain-0.0001 --out results/token_scores/sst2

The model is one of ``train-supernet --strategy plain``; its report rows score, every block keeps the same
share of its tokens. Beside the scores that ldsearch has stand some that were tried and not kept. ``learned``
is fitted to training rows first. The last line is one JSON object.
"""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from imdb_train import constant_ratio, fitted
from squad_minilm import in_points
from torch import Tensor

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError
from ldsearch.evaluation import Evaluator
from ldsearch.supernet import Supernet
from ldsearch.supernet.saliency import LEARNED
from ldsearch.supernet.tokens import TOKEN_SCORES, Attention, TokenScore, column, sums_over_heads

BASE = "column"
VALUE = "value"


@sums_over_heads
def value(attention: Attention) -> Tensor:
    """Attention received from other tokens, in each head times the squared norm of the token's values.

    What a head reads of a token is attention times values; [SEP] and full stops receive much attention
    and have small values (Kobayashi et al. 2020, arXiv 2004.10102).
    """
    received = attention.probabilities
    own = received.diagonal(dim1=-2, dim2=-1)
    if attention.masked:
        received = received * attention.real[:, None, :, None]
        own = own * attention.real[:, None]
    norms = attention.values.square().sum(dim=-1)
    return ((received.sum(dim=2) - own) * norms).sum(dim=1)


@sums_over_heads
def value_with_own(attention: Attention) -> Tensor:
    """``value`` with what a token reads of itself."""
    received = attention.probabilities * attention.real[:, None, :, None]
    return (received.sum(dim=2) * attention.values.square().sum(dim=-1)).sum(dim=1)


@sums_over_heads
def of_first(attention: Attention) -> Tensor:
    """What position 0 alone looks at."""
    return attention.probabilities[:, :, 0].sum(dim=1)


@sums_over_heads
def size(attention: Attention) -> Tensor:
    """Norm of the values, whoever looks."""
    return (attention.values.norm(dim=-1) * attention.real[:, None]).sum(dim=1)


def without_last(attention: Attention) -> Tensor:
    """``column``, but the last token ([SEP]) goes first."""
    last = attention.real.sum(dim=1, keepdim=True) - 1
    return column(attention).scatter(1, last, 0.0)


TRIED: Mapping[str, TokenScore] = {
    VALUE: value,
    "value, its own too": value_with_own,
    "[CLS]'s row": of_first,
    "norm of the values": size,
    "column, [SEP] first to go": without_last,
}
SAYS: Mapping[str, str] = {
    "column": "attention received from all tokens (the default)",
    "power": "attention received from other tokens",
    LEARNED: "fitted to the loss's gradients on training rows",
}


def measure(
    bench: Bench, names: Sequence[str], shares: Sequence[float], rows: int | None, skipped: int
) -> dict[str, Any]:
    """The score of each sub-network by each token score, and its paired difference to ``column``."""
    task = bench.task
    encoded = task.encode("report", bench.tokenizer, bench.record.reference)
    encoded = encoded.take(range(skipped, encoded.examples if rows is None else skipped + rows))
    subnets = [constant_ratio(share, bench) for share in shares]
    found, base = {}, None
    for name in dict.fromkeys([BASE, *names]):
        net = (fitted(bench) if name == LEARNED else Supernet(bench.supernet.model, name)).eval()
        evaluator = Evaluator(net, task, encoded, split="report", tokenizer=bench.tokenizer)
        if base is None:  # the full model drops nothing by any score
            full = bench.score(evaluator.statistics(bench.full)).value
        evaluator(subnets)
        statistics = [evaluator.statistics(subnet) for subnet in subnets]
        base = base or statistics
        found[name] = [
            {"score": bench.score(own).value, "to column": asdict(bench.difference(own, other))}
            for own, other in zip(statistics, base, strict=True)
        ]
        print(name, [row["score"] for row in found[name]], flush=True)
    return {"metric": task.metric.name, "rows": encoded.examples, "full": full, "scores": found}


def page(result: Mapping[str, Any]) -> str:
    """The page."""
    scores = result["scores"]
    shares, flags = result["shares"], f"--shares {' '.join(f'{share:g}' for share in result['shares'])}"
    if result["skipped"]:
        flags += f" --skip {result['skipped']}"
    if result["limit"] is not None:
        flags += f" --rows {result['limit']}"
    if set(scores) < {*SAYS, *TRIED}:
        flags += f" --scores {shlex.join(scores)}"
    lines = [
        "# Which tokens should stay?",
        "",
        "```",
        f"python scripts/token_scores.py {result['model']} --out {result['out']} {flags}",
        "```",
        "",
        "A plain model, never trained to do with fewer tokens; every block keeps the same share of them, the",
        f"best by the score. {result['rows']:,} report rows; {result['metric']} in points, full",
        f"model {100 * result['full']:.2f}; differences to `{BASE}` with 95% paired intervals.",
        "",
        f"| token score | {' | '.join(f'{share:g} of the MACs' for share in shares)} |",
        f"|---|{'---|' * len(shares)}",
    ]
    for name, rows in scores.items():
        what = f"`{name}`: {SAYS[name]}" if name in SAYS else f"{name} (tried, not kept)"
        cells = [f"{100 * row['score']:.2f}" if name == BASE else in_points(row["to column"]) for row in rows]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder of a plain training")
    parser.add_argument("--out", type=Path, required=True, help="where token_scores.json and README.md go")
    parser.add_argument("--rows", type=int, help="report rows (default: all)")
    parser.add_argument("--skip", type=int, default=0, help="so many first ones that were looked at before")
    parser.add_argument("--scores", nargs="+", choices=[*SAYS, *TRIED], default=[*SAYS, *TRIED])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.7, 0.5, 0.4, 0.3], help="of the MACs")
    options = parser.parse_args()
    for name, score in TRIED.items():
        TOKEN_SCORES.register(name, score)
    result = {
        "model": str(options.model),
        "out": str(options.out),
        "shares": options.shares,
        "limit": options.rows,
        "skipped": options.skip,
        "versions": versions(),
        **measure(
            Bench.open(options.model, "search"), options.scores, options.shares, options.rows, options.skip
        ),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "token_scores.json", result)
    (options.out / "README.md").write_text(page(result), encoding="utf-8")
    print(json.dumps({name: [row["score"] for row in rows] for name, rows in result["scores"].items()}))


if __name__ == "__main__":
    try:
        main()
    except LdsearchError as error:
        raise SystemExit(f"error: {error}") from error
