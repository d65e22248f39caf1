"""Importance of each block of a supernet over random sub-networks (Fan et al. 2019, Fig. 5)."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.console import print_table
from ldsearch.commands.imitation import imitator
from ldsearch.commands.searching import evaluate_with
from ldsearch.errors import RunError, unknown
from ldsearch.evaluation import Evaluator
from ldsearch.evaluation.evaluator import Counts
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.interruption import interruptible
from ldsearch.progress import NO_PROGRESS, Progress, Stoppable
from ldsearch.reports.figures import draw_importance, save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.runs import claim
from ldsearch.search.importance import Ablation, Importance, importance
from ldsearch.subnet import Subnet
from ldsearch.training.checkpoints import report_disk_full
from ldsearch.trial import Trial

MARKER = "importance.json"
OBJECTIVES: Mapping[str, Callable[[Bench], Evaluator]] = MappingProxyType(
    {"score": lambda bench: bench.evaluator, "kl": imitator}
)


@dataclass(frozen=True)
class BlockImportances:
    """The importance of the blocks of one stack.

    Args:
        folder: Where importance.csv, importance.png and importance.json lie.
        stack: Which stack.
        keep: Blocks of a sub-network that lacks one.
        pinned: Blocks that no sub-network lacks.
        metric: What the scores are.
        examples: How many examples they rest on.
        split: Where the examples come from.
        blocks: One for each block that can be left out, ascending.
        counts: What measuring took in this call.
    """

    folder: Path
    stack: str
    keep: int
    pinned: tuple[int, ...]
    metric: str
    examples: int
    split: str
    blocks: tuple[Importance, ...]
    counts: Counts

    @property
    def table(self) -> pd.DataFrame:
        """A row for each block; the columns are the fields of ``Importance``."""
        return pd.DataFrame([asdict(found) for found in self.blocks])


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
    bench: Bench,
    folder: str | Path,
    *,
    keep: int | None = None,
    subsets: int = 20,
    stack: str | None = None,
    objective: str = "score",
    seed: int = 0,
    progress: Progress = NO_PROGRESS,
) -> BlockImportances:
    """Compare random sub-networks without a block to the same with it; the same call goes on.

    Args:
        bench: The supernet; an encoder-decoder's other stack stays whole.
        folder: Where reports go.
        keep: Blocks of a sub-network that lacks one; None: half of them, rounded up.
        subsets: Sub-networks for each block, as ``Ablation`` draws them.
        stack: ``"encoder"`` or ``"decoder"``; None where there is only one.
        objective: ``"score"``, or ``"kl"``, the divergence from the full model's outputs.
        seed: Of the sub-networks.
        progress: Receives phases and trials.

    Raises:
        LdsearchError: One line for a bad option or folder.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    if objective not in OBJECTIVES:
        raise RunError(unknown("objective", objective, OBJECTIVES))
    bench.require_supernet()
    name, folder = stack_of(bench, stack), Path(folder)
    depth = bench.supernet.depths[name]
    pinned = bench.supernet.pinned if name == bench.supernet.stack else ()
    ablation = Ablation(depth, depth - depth // 2 if keep is None else keep, subsets, seed, pinned)
    evaluator = OBJECTIVES[objective](bench)
    identity = {
        "strategy": "importance",
        "fingerprint": evaluator.fingerprint,
        "stack": name,
        "objective": objective,
        **asdict(ablation),
    }
    claim(folder, MARKER, identity)
    progress.phase("sub-networks", 2 * ablation.count * len(ablation.free))
    measured: dict[int, list[Trial]] = {}
    with interruptible() as stop, report_disk_full(folder):
        evaluate = evaluate_with(evaluator, Stoppable(progress, stop))
        # Block by block: what runs together is stored together, so a kill costs one block's share.
        for block in ablation.free:
            lacking = ablation.lacking(block)
            pairs = [*lacking, *(tuple(sorted({*blocks, block})) for blocks in lacking)]
            subnets = [Subnet.of_blocks(_whole_but(bench, name, blocks)) for blocks in pairs]
            measured[block] = evaluate(subnets, 0)
        found = _importances(folder, name, ablation, measured, evaluator.counts)
        _report(bench, found, identity)
    return found


def _whole_but(bench: Bench, stack: str, blocks: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    whole = {name: tuple(range(depth)) for name, depth in bench.supernet.depths.items()}
    return {**whole, stack: blocks}


def _importances(
    folder: Path, stack: str, ablation: Ablation, measured: Mapping[int, list[Trial]], counts: Counts
) -> BlockImportances:
    first = next(iter(measured.values()))[0]
    found = []
    for block, trials in measured.items():
        scores = [trial.score.value for trial in trials]
        half = len(scores) // 2
        found.append(
            importance(
                block,
                scores[:half],
                scores[half:],
                higher_is_better=first.score.higher_is_better,
                possible=ablation.possible,
            )
        )
    return BlockImportances(
        folder,
        stack,
        ablation.keep,
        ablation.pinned,
        first.metric,
        first.examples,
        first.split,
        tuple(found),
        counts,
    )


def _report(bench: Bench, found: BlockImportances, identity: Mapping[str, Any]) -> None:
    folder, table = found.folder, found.table
    write_csv(table, folder / "importance.csv")
    title = (
        f"{bench.folder.name}: {found.blocks[0].subsets} sub-networks of {found.keep} of "
        f"{bench.supernet.depths[found.stack]} {found.stack} blocks each"
    )
    save_figure(draw_importance(table, title, found.metric), folder / "importance.png")
    blocks = [
        {key: None if math.isnan(value) else value for key, value in asdict(one).items()}
        for one in found.blocks
    ]
    write_json(
        folder / MARKER,
        {
            "identity": dict(identity),
            "supernet": os.path.relpath(bench.folder, folder),
            "split": found.split,
            "examples": found.examples,
            "metric": found.metric,
            "blocks": blocks,
            "this_call": asdict(found.counts),
            "measured_as": "fp32; each random sub-network that lacks a block beside the same with it",
            "versions": versions(),
        },
    )


def print_importance(result: BlockImportances) -> dict[str, Any]:
    """A row per block; returns what ``--json`` prints."""
    first = result.blocks[0]
    drawn = "all" if first.subsets == first.possible else f"{first.subsets} of {first.possible:,}"
    print_table(
        f"{drawn} sub-networks of {result.keep} {result.stack} blocks that lack the block; "
        f"{result.metric} on {result.examples} {result.split} examples",
        ["block", "loss without it", "standard error", "without", "with"],
        [
            [
                str(row.block),
                f"{row.loss:+.4f}",
                f"{row.standard_error:.4f}",
                f"{row.without:.4f}",
                f"{row.restored:.4f}",
            ]
            for row in result.blocks
        ],
    )
    if result.pinned:
        print(f"blocks {', '.join(map(str, result.pinned))} must stay in this model: not left out")
    print(f"cost: {result.counts.describe()}")
    print(f"written: {result.folder}/ (importance.csv, importance.png, importance.json)")
    return {"run": str(result.folder), "blocks": [asdict(row) for row in result.blocks]}
