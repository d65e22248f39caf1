"""Importance of each block of a supernet over random sub-networks (Fan et al. 2019, Fig. 5)."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.console import print_table
from ldsearch.disk.files import report_disk_full
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import RunError, unknown
from ldsearch.evaluation import Evaluator
from ldsearch.evaluation.counts import Counts
from ldsearch.options import Report
from ldsearch.reports.figures import draw_importance
from ldsearch.reports.style import save_figure
from ldsearch.runs.folder import claim
from ldsearch.runs.run import Run, Study, read_json
from ldsearch.search.imitation import imitator
from ldsearch.search.importance import Ablation, importance
from ldsearch.search.measuring import evaluate_with
from ldsearch.subnet import Subnet
from ldsearch.work.interruption import interruptible
from ldsearch.work.progress import NO_PROGRESS, Progress, Stoppable

MARKER = "importance.json"
# Those of the table that the report shows.
COLUMNS = ("block", "loss", "standard_error", "without", "restored")
OBJECTIVES: Mapping[str, Callable[[Bench], Evaluator]] = MappingProxyType(
    {"score": lambda bench: bench.evaluator, "kl": imitator}
)


def stack_of(bench: Bench, stack: str | None) -> str:
    """The named stack, or the only one.

    Raises:
        RunError: If the model has no such stack, or more than one and none is named.
    """
    depths = bench.supernet.depths
    if stack is None and len(depths) > 1:
        raise RunError(f"the model has more than one stack: choose --stack {' or --stack '.join(depths)}")
    if stack is not None and stack not in depths:
        raise RunError(f"the model has no {stack}: its blocks are the {' and the '.join(depths)}'s")
    return stack or bench.supernet.stack


def block_importance(
    bench: Bench, folder: Path, options: Report, *, progress: Progress = NO_PROGRESS
) -> Study:
    """Compare random sub-networks without a block to the same with it; the same call goes on.

    Args:
        bench: The supernet; an encoder-decoder's other stack stays whole.
        folder: Where importance.csv, importance.png and importance.json go.
        options: ``keep``, ``subsets``, ``stack``, ``objective`` and ``seed`` of the measurement.
        progress: Receives phases and trials.

    Returns:
        A table with the fields of ``search.importance.Importance``, a row for each block that can be left
        out.

    Raises:
        LdsearchError: One line for a bad option or folder.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    if options.objective not in OBJECTIVES:
        raise RunError(unknown("objective", options.objective, OBJECTIVES))
    bench.require_supernet()
    stack = stack_of(bench, options.stack)
    depth = bench.supernet.depths[stack]
    keep = depth - depth // 2 if options.keep is None else options.keep
    ablation = Ablation(depth, keep, options.subsets, options.seed, bench.supernet.pinned_of(stack))
    evaluator = OBJECTIVES[options.objective](bench)
    identity = {
        "strategy": "importance",
        "fingerprint": evaluator.fingerprint,
        "stack": stack,
        "objective": options.objective,
        **asdict(ablation),
    }
    claim(folder, MARKER, identity)
    progress.phase("sub-networks", 2 * ablation.count * len(ablation.free))
    whole = {name: tuple(range(blocks)) for name, blocks in bench.supernet.depths.items()}
    blocks = []
    with interruptible() as stop, report_disk_full(folder):
        evaluate = evaluate_with(evaluator, Stoppable(progress, stop))
        # Block by block: what runs together is stored together, so a kill costs one block's share.
        for block in ablation.free:
            lacking = ablation.lacking(block)
            pairs = [*lacking, *(tuple(sorted({*kept, block})) for kept in lacking)]
            trials = evaluate([Subnet.of_blocks({**whole, stack: kept}) for kept in pairs], 0)
            scores = [trial.score.value for trial in trials]
            without, restored = scores[: len(lacking)], scores[len(lacking) :]
            higher = trials[0].score.higher_is_better
            blocks.append(
                asdict(
                    importance(block, without, restored, higher_is_better=higher, possible=ablation.possible)
                )
            )
        fields = {
            "identity": identity,
            "supernet": os.path.relpath(bench.folder, folder),
            "split": trials[0].split,
            "examples": trials[0].examples,
            "metric": trials[0].metric,
            "blocks": [
                {key: None if math.isnan(value) else value for key, value in row.items()} for row in blocks
            ],
            "this_call": asdict(evaluator.counts),
            "measured_as": "fp32; each random sub-network that lacks a block beside the same with it",
            "versions": versions(),
        }
        study = Study(folder, "importance", fields, pd.DataFrame(blocks))
        title = f"{bench.folder.name}: {ablation.count} sub-networks of {keep} of {depth} {stack} blocks each"
        save_figure(draw_importance(study.table, title, trials[0].metric), folder / "importance.png")
        study.write()
    return study


def importances_of(run: Run) -> list[Study]:
    """The runs of this run's supernet in the same runs folder.

    Raises:
        RunError: If one is damaged.
    """
    supernet = run.supernet.resolve()
    return [
        Study.open(path, COLUMNS)
        for path in sorted(run.folder.resolve().parent.glob(f"*/{MARKER}"))
        if "supernet" in (fields := read_json(path))
        and (path.parent / fields["supernet"]).resolve() == supernet
    ]


def print_importance(study: Study) -> dict[str, Any]:
    """A row per block; returns what ``--json`` prints."""
    fields, rows = study.fields, study.table.to_dict("records")
    identity, first = fields["identity"], rows[0]
    drawn = "all" if first["subsets"] == first["possible"] else f"{first['subsets']} of {first['possible']:,}"
    print_table(
        f"{drawn} sub-networks of {identity['keep']} {identity['stack']} blocks that lack the block; "
        f"{fields['metric']} on {fields['examples']} {fields['split']} examples",
        ["block", "loss without it", "standard error", "without", "with"],
        [
            [
                str(row["block"]),
                f"{row['loss']:+.4f}",
                f"{row['standard_error']:.4f}",
                f"{row['without']:.4f}",
                f"{row['restored']:.4f}",
            ]
            for row in rows
        ],
    )
    if identity["pinned"]:
        print(f"blocks {', '.join(map(str, identity['pinned']))} must stay in this model: not left out")
    print(f"cost: {Counts(**fields['this_call']).describe()}")
    print(f"written: {study.folder}/ (importance.csv, importance.png, importance.json)")
    return {"run": str(study.folder), "blocks": rows}
