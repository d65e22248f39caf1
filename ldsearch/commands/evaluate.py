"""Scores sub-networks beside the full model on rows that chose nothing, by the task or by what they write."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.console import print_fields, print_table, progress_bars, quiet_libraries, resumable
from ldsearch.commands.grid import all_depths
from ldsearch.disk.fingerprint import digest, versions
from ldsearch.errors import RunError
from ldsearch.evaluation.decoding import Decoding
from ldsearch.options import Evaluate
from ldsearch.reports.tables import write_csv
from ldsearch.runs.folder import claim
from ldsearch.runs.run import Run
from ldsearch.runs.target import Target
from ldsearch.search.generation import decoded, decoding_of, writing_task
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record
from ldsearch.tasks.base import score
from ldsearch.tasks.metrics import Metric, bleu_signature, metric_named
from ldsearch.trials.intervals import Statistics, paired_bootstrap
from ldsearch.work.progress import NO_PROGRESS, Progress

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
    if options.name is not None:
        raise RunError("--name is for --all-depths: other scores are printed, or written to the run")
    of_texts = options.frontier or options.limit or decoding_of(options) != Decoding()
    if options.metric is None and of_texts:
        raise RunError("--frontier, --limit and the options of decoding are for a --metric of texts")
    if options.frontier and options.subnet is not None:
        raise RunError("--frontier scores the sub-networks of a run: it takes no --subnet")
    with resumable("run the same command again; nothing decoded is lost"), progress_bars() as bars:
        return evaluate_frontier(options, bars) if options.frontier else evaluate(options, bars)


def evaluate(options: Evaluate, progress: Progress = NO_PROGRESS) -> dict[str, Any]:
    """Score a sub-network and the full model on one split, and print both.

    Args:
        options: See ``Evaluate``. By default the split that did not choose the sub-network is taken, and the
            task's own score.
        progress: Receives a step for each model that is decoded.

    Returns:
        The ``subnet``, the ``metric``, the ``split``; ``score`` and ``full_score`` with the interval of their
        ``difference`` (paired bootstrap); ``costs`` and ``full_costs`` by name.

    Raises:
        LdsearchError: One line for a bad folder, sub-network, split or way of decoding.
    """
    texts = _text_metric(options)
    target = Target.resolve(options.folder, options.subnet)
    bench, whole = _benches(target, options)
    bench.supernet.check(target.subnet)
    metric = texts or bench.task.metric
    (own,), full = _statistics(bench, whole, [target.subnet], texts, options, progress)
    value, full_value = (score(metric, statistics).value for statistics in (own, full))
    difference = paired_bootstrap(own, full, of_means=metric.of_means)
    costs, full_costs = bench.evaluator.costs_of([target.subnet, bench.full])
    share, padded = (costs[name] / full_costs[name] for name in ("macs", "padded_macs"))
    split = bench.evaluator.split
    if target.chosen_on == split:
        print("note: the search chose by these very examples, so the score is optimistic", file=sys.stderr)
    print_fields(
        {
            "sub-network": target.subnet.describe(),
            metric.name: f"{value:.4f} on {difference.examples} {split} examples",
            "full model": f"{full_value:.4f}",
            "difference": f"{difference.mean:+.4f}, 95% interval {difference.low:+.4f} to "
            f"{difference.high:+.4f} (paired bootstrap)",
            **({"decoded": _in_words(bench, metric, options)} if texts else {}),
            "MACs": f"{costs['macs']:,.0f} per example, {share:.3f} of the full model's",
            "padded MACs": f"{padded:.3f} of the full model's, the length-adaptive paper's protocol",
            "parameters": f"{costs['parameters']:,.0f}",
        }
    )
    return {
        "subnet": json.loads(target.subnet.to_json()),
        "metric": metric.name,
        "split": split,
        "score": value,
        "full_score": full_value,
        "difference": asdict(difference),
        "costs": costs,
        "full_costs": full_costs,
    }


def evaluate_frontier(options: Evaluate, progress: Progress = NO_PROGRESS) -> dict[str, Any]:
    """Score every sub-network of a run's frontier by what it writes; write ``generated.csv`` to the run.

    The table has a row per sub-network, cheapest first: ``subnet`` (JSON), ``macs_share`` (of the full
    model's), ``search_score`` (by which it came onto the frontier), ``metric``, ``generated_score``, and
    ``difference``, ``difference_low`` and ``difference_high`` of that to the full model's.

    Args:
        options: See ``Evaluate``; ``metric`` names one of texts.
        progress: Receives a step for each model that is decoded.

    Returns:
        The table's path (``written``) and the ``full_score``.

    Raises:
        LdsearchError: One line for a bad folder, metric, split or way of decoding.
    """
    metric = _text_metric(options)
    assert metric is not None
    run = Run.open(options.folder)
    bench, whole = _benches(Target.resolve(options.folder), options)
    own, full = _statistics(bench, whole, run.subnets, metric, options, progress)
    full_score = score(metric, full).value
    gaps = [paired_bootstrap(statistics, full, of_means=metric.of_means) for statistics in own]
    table = pd.DataFrame(
        {
            "subnet": run.frontier["subnet"],
            "macs_share": run.frontier["macs_share"],
            "search_score": run.frontier["score"],
            "metric": metric.name,
            "generated_score": [score(metric, statistics).value for statistics in own],
            "difference": [gap.mean for gap in gaps],
            "difference_low": [gap.low for gap in gaps],
            "difference_high": [gap.high for gap in gaps],
        }
    )
    path = options.folder / TABLE
    write_csv(table, path)
    print_table(
        f"frontier, {metric.name} on {len(full)} {bench.evaluator.split} examples",
        ["MACs share", "search score", metric.name, "minus full, 95%", "sub-network"],
        [
            [
                f"{row['macs_share']:.3f}",
                f"{row['search_score']:.4f}",
                f"{row['generated_score']:.4f}",
                f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}",
                Subnet.from_json(row["subnet"]).describe(),
            ]
            for row in table.to_dict("records")
        ],
    )
    how = _in_words(bench, metric, options)
    print_fields({"full model": f"{full_score:.4f}", "decoded": how, "written": str(path)})
    return {"written": str(path), "full_score": full_score}


def _text_metric(options: Evaluate) -> Metric | None:
    """The metric of texts that is named; None where none is."""
    return None if options.metric is None else metric_named("texts", options.metric, 1)


def _benches(target: Target, options: Evaluate) -> tuple[Bench, Bench]:
    """The sub-network's model and the full model to compare with, opened on the split to report on."""
    split = options.split or target.unbiased_split(read_record(target.supernet).splits)
    bench = Bench.open(target.supernet, split, options.data, target.runs)
    if target.parent is None:
        return bench, bench
    # Of a model with one sub-network trained on its own, the full model is nothing to compare with.
    return bench, Bench.open(target.parent, split, options.data, target.runs, bench.task)


def _statistics(
    bench: Bench,
    whole: Bench,
    subnets: Sequence[Subnet],
    texts: Metric | None,
    options: Evaluate,
    progress: Progress,
) -> tuple[list[Statistics], Statistics]:
    """Statistics of the sub-networks and of the full model; texts in the folder are not decoded again."""
    if texts is None:
        own = [bench.evaluator.statistics(subnet) for subnet in subnets]
        return own, whole.evaluator.statistics(whole.full)
    wanted = {bench.folder: (bench, set(subnets))}
    wanted.setdefault(whole.folder, (whole, set()))[1].add(whole.full)
    progress.phase("decoding", sum(len(alike) for _, alike in wanted.values()))
    result: dict[tuple[Path, Subnet], Statistics] = {}
    for model, alike in wanted.values():
        named = {digest(subnet.to_json()): subnet for subnet in alike}
        for name, statistics in decoded(model, named, _texts_folder(model, options), texts, options):
            result[model.folder, named[name]] = statistics
            progress.step()
    return [result[bench.folder, subnet] for subnet in subnets], result[whole.folder, whole.full]


def _texts_folder(bench: Bench, options: Evaluate) -> Path:
    """Folder of decoded texts: those of other weights, rows or options lie elsewhere."""
    writing_task(bench)  # refuses before anything is written
    identity = {
        "decoding": asdict(decoding_of(options)),
        "limit": options.limit,
        "split": bench.evaluator.split,
        "fingerprint": bench.evaluator.fingerprint,
        "versions": versions(),
    }
    place = options.folder / TEXTS / digest(json.dumps(identity, sort_keys=True))
    claim(place, _MARKER, identity)
    return place


def _in_words(bench: Bench, metric: Metric, options: Evaluate) -> str:
    """The decoding and the metric's signature."""
    signature = "F1 of stemmed words, the best of several references"
    if metric.name == "bleu":
        references = writing_task(bench).rows(bench.evaluator.split).targets[: options.limit]
        signature = f"sacreBLEU {bleu_signature(references)}"
    return f"{decoding_of(options).describe()}; {signature}"
