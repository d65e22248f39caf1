"""Scores sub-networks beside the full model on rows that chose nothing, by the task or by what they write."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.console import print_fields, print_table, progress_bars, quiet_libraries, resumable
from ldsearch.commands.generation import TextTest, decoding_of, writing_task
from ldsearch.commands.grid import all_depths
from ldsearch.commands.options import Evaluate
from ldsearch.decoding import Decoding
from ldsearch.errors import RunError
from ldsearch.fingerprint import digest, versions
from ldsearch.intervals import Interval, Statistics, paired_bootstrap
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.reports.tables import write_csv
from ldsearch.runs import Run, claim
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record
from ldsearch.target import Target
from ldsearch.tasks.base import score
from ldsearch.tasks.metrics import Metric, bleu_signature, metric_named
from ldsearch.trial import Score

# In a run's folder: texts, a folder for each way of decoding them, and the table of a frontier.
TEXTS = "generated"
TABLE = "generated.csv"
_MARKER = "decoding.json"


def main(options: Evaluate) -> dict[str, Any]:
    """Score, and print the score with its interval."""
    quiet_libraries()
    if options.all_depths:
        return all_depths(options)
    if options.assignment is not None or options.baseline is not None:
        raise RunError("--assignment and --baseline are for --all-depths")
    decoding = decoding_of(options)
    if options.metric is None:
        if options.frontier or options.limit is not None or decoding != Decoding():
            raise RunError("--frontier, --limit and the options of decoding are for a --metric of texts")
        result = evaluate(options.folder, subnet=options.subnet, split=options.split, data=options.data)
        return _print_one(result)
    if options.frontier and options.subnet is not None:
        raise RunError("--frontier scores the sub-networks of a run: it takes no --subnet")
    texts = TextTest(metric_named("texts", options.metric, 1), decoding, options.limit)
    with resumable("run the same command again; nothing decoded is lost"), progress_bars() as bars:
        if options.frontier:
            return _print_frontier(
                evaluate_frontier(
                    options.folder, texts, split=options.split, data=options.data, progress=bars
                )
            )
        result = evaluate(
            options.folder,
            subnet=options.subnet,
            split=options.split,
            data=options.data,
            texts=texts,
            progress=bars,
        )
    return _print_one(result)


@dataclass(frozen=True)
class Evaluation:
    """A sub-network beside the full model on the same examples.

    Args:
        subnet: The sub-network.
        metric: Name of the score.
        score: The sub-network's.
        full_score: The full model's.
        difference: The sub-network's score minus the full model's, paired bootstrap.
        costs: The sub-network's, by name.
        full_costs: The full model's.
        split: Where the examples come from.
        chosen_on: Whether a search chose the sub-network by these very examples.
        how: Of a score of texts the decoding and the metric's signature, in words.
    """

    subnet: Subnet
    metric: str
    score: Score
    full_score: Score
    difference: Interval
    costs: Mapping[str, float]
    full_costs: Mapping[str, float]
    split: str
    chosen_on: bool
    how: str = ""


@dataclass(frozen=True)
class Rescored:
    """A frontier, scored by what its sub-networks write.

    Args:
        table: One row per sub-network, cheapest first: ``subnet`` (JSON), ``macs_share`` (of the full
            model's), ``search_score`` (by which it came onto the frontier), ``metric``, ``generated_score``,
            and ``difference``, ``difference_low`` and ``difference_high`` of that to the full model's.
        full_score: The full model's.
        examples: How many were decoded.
        split: Where they come from.
        how: The decoding and the metric's signature, in words.
        path: The table as a file.
    """

    table: pd.DataFrame
    full_score: float
    examples: int
    split: str
    how: str
    path: Path


def evaluate(
    folder: str | Path,
    *,
    subnet: str | None = None,
    split: str | None = None,
    data: str | None = None,
    texts: TextTest | None = None,
    progress: Progress = NO_PROGRESS,
) -> Evaluation:
    """Score a sub-network and the full model on one split, with the interval of their difference.

    Args:
        folder: A search run, or a supernet together with ``subnet``.
        subnet: JSON or ``"full"``; None takes the run's best.
        split: ``search`` or ``report``; None takes the one that did not choose the sub-network.
        data: Where the supernet's data lie now, if they were moved.
        texts: Score what they write, and keep it in the folder; None: the task's own score.
        progress: Receives a step for each model that is decoded.

    Raises:
        LdsearchError: One line for a bad folder, sub-network, split or way of decoding.
    """
    target = Target.resolve(folder, subnet)
    bench, whole = _benches(target, split, data)
    bench.supernet.check(target.subnet)
    metric = bench.task.metric if texts is None else texts.metric
    if texts is None:
        own, full = bench.evaluator.statistics(target.subnet), whole.evaluator.statistics(bench.full)
    else:
        wanted = [(bench, target.subnet), (whole, bench.full)]
        own, full = _decoded(Path(folder), texts, wanted, progress)
    costs, full_costs = bench.evaluator.costs_of([target.subnet, bench.full])
    return Evaluation(
        subnet=target.subnet,
        metric=metric.name,
        score=score(metric, own),
        full_score=score(metric, full),
        difference=paired_bootstrap(own, full, of_means=metric.of_means),
        costs=costs,
        full_costs=full_costs,
        split=bench.evaluator.split,
        chosen_on=target.chosen_on == bench.evaluator.split,
        how="" if texts is None else _in_words(bench, texts),
    )


def evaluate_frontier(
    folder: str | Path,
    texts: TextTest,
    *,
    split: str | None = None,
    data: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> Rescored:
    """Score every sub-network of a run's frontier by what it writes; write ``generated.csv`` to the run.

    Args:
        folder: A search run.
        texts: How.
        split: ``search`` or ``report``; None takes the one that did not choose.
        data: Where the supernet's data lie now, if they were moved.
        progress: Receives a step for each model that is decoded.

    Raises:
        LdsearchError: One line for a bad folder, split or way of decoding.
    """
    folder = Path(folder)
    run = Run.open(folder)
    bench, _ = _benches(Target.resolve(folder), split, data)
    wanted = [(bench, subnet) for subnet in (*run.subnets, bench.full)]
    *own, full = _decoded(folder, texts, wanted, progress)
    gaps = [paired_bootstrap(one, full, of_means=texts.metric.of_means) for one in own]
    table = pd.DataFrame(
        {
            "subnet": run.frontier["subnet"],
            "macs_share": run.frontier["macs_share"],
            "search_score": run.frontier["score"],
            "metric": texts.metric.name,
            "generated_score": [score(texts.metric, one).value for one in own],
            "difference": [gap.mean for gap in gaps],
            "difference_low": [gap.low for gap in gaps],
            "difference_high": [gap.high for gap in gaps],
        }
    )
    write_csv(table, folder / TABLE)
    full_score = score(texts.metric, full).value
    split = bench.evaluator.split
    return Rescored(table, full_score, len(full), split, _in_words(bench, texts), folder / TABLE)


def _benches(target: Target, split: str | None, data: str | None) -> tuple[Bench, Bench]:
    """The sub-network's model and the full model to compare with, opened on the split to report on."""
    chosen = split or target.unbiased_split(read_record(target.supernet).splits)
    bench = Bench.open(target.supernet, chosen, data, target.runs)
    if target.parent is None:
        return bench, bench
    # Of a model with one sub-network trained on its own, the full model is nothing to compare with.
    return bench, Bench.open(target.parent, chosen, data, target.runs, bench.task)


def _decoded(
    folder: Path, texts: TextTest, wanted: Sequence[tuple[Bench, Subnet]], progress: Progress
) -> list[Statistics]:
    """Of each sub-network, in order; texts that the folder holds are not decoded again."""
    found: dict[tuple[Path, Subnet], Statistics] = {}
    total = len({(bench.folder, subnet) for bench, subnet in wanted})
    progress.phase("decoding", total)
    for bench in {bench.folder: bench for bench, _ in wanted}.values():
        own = {digest(subnet.to_json()): subnet for other, subnet in wanted if other is bench}
        for name, statistics in texts.run(bench, own, _texts_folder(folder, texts, bench)):
            found[bench.folder, own[name]] = statistics
            progress.step()
    return [found[bench.folder, subnet] for bench, subnet in wanted]


def _texts_folder(folder: Path, texts: TextTest, bench: Bench) -> Path:
    """Where what is decoded so lies: texts of other weights, rows or options lie elsewhere."""
    writing_task(bench)  # refuses before anything is written
    identity = {
        "decoding": asdict(texts.decoding),
        "limit": texts.limit,
        "split": bench.evaluator.split,
        "fingerprint": bench.evaluator.fingerprint,
        "versions": versions(),
    }
    place = folder / TEXTS / digest(json.dumps(identity, sort_keys=True))
    claim(place, _MARKER, identity)
    return place


def _in_words(bench: Bench, texts: TextTest) -> str:
    references = writing_task(bench).rows(bench.evaluator.split).targets[: texts.limit]
    return f"{texts.decoding.describe()}; {_signature(texts.metric, references)}"


def _signature(metric: Metric, references: Sequence[Sequence[str]]) -> str:
    """The metric's signature."""
    if metric.name == "bleu":
        return f"sacreBLEU {bleu_signature(references)}"
    return "F1 of stemmed words, the best of several references"


def _print_one(result: Evaluation) -> dict[str, Any]:
    difference = result.difference
    share, padded = (result.costs[name] / result.full_costs[name] for name in ("macs", "padded_macs"))
    if result.chosen_on:
        print("note: the search chose by these very examples, so the score is optimistic", file=sys.stderr)
    print_fields(
        {
            "sub-network": result.subnet.describe(),
            result.metric: f"{result.score.value:.4f} on {difference.examples} {result.split} examples",
            "full model": f"{result.full_score.value:.4f}",
            "difference": f"{difference.mean:+.4f}, 95% interval {difference.low:+.4f} to "
            f"{difference.high:+.4f} (paired bootstrap)",
            **({"decoded": result.how} if result.how else {}),
            "MACs": f"{result.costs['macs']:,.0f} per example, {share:.3f} of the full model's",
            "padded MACs": f"{padded:.3f} of the full model's, the length-adaptive paper's protocol",
            "parameters": f"{result.costs['parameters']:,.0f}",
        }
    )
    return {
        "subnet": json.loads(result.subnet.to_json()),
        "metric": result.metric,
        "split": result.split,
        "score": result.score.value,
        "full_score": result.full_score.value,
        "difference": asdict(difference),
        "costs": result.costs,
        "full_costs": result.full_costs,
    }


def _print_frontier(result: Rescored) -> dict[str, Any]:
    metric = result.table["metric"].iloc[0]
    print_table(
        f"frontier, {metric} on {result.examples} {result.split} examples",
        ["MACs share", "search score", metric, "minus full, 95%", "sub-network"],
        [
            [
                f"{row['macs_share']:.3f}",
                f"{row['search_score']:.4f}",
                f"{row['generated_score']:.4f}",
                f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}",
                Subnet.from_json(row["subnet"]).describe(),
            ]
            for row in result.table.to_dict("records")
        ],
    )
    print_fields(
        {"full model": f"{result.full_score:.4f}", "decoded": result.how, "written": str(result.path)}
    )
    return {"written": str(result.path), "full_score": result.full_score}
