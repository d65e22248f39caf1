"""Tunes a supernet's training: tries hyperparameters, keeps those with the best area over the cost range.

Half-trained supernets are not pruned by their area: LengthDrop trains the full model alone first, and
sub-networks catch up late, so an early area ranks how fast a training starts.
"""

import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from optuna.distributions import distribution_to_json

from ldsearch.bench import Workbench
from ldsearch.commands.arguments import training_arguments
from ldsearch.commands.train_options import TrainOptions
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import RunError, TrainingError, one_line
from ldsearch.files import write_json
from ldsearch.fingerprint import versions
from ldsearch.interruption import interruptible
from ldsearch.intervals import Interval
from ldsearch.reports.figures import save_figure
from ldsearch.reports.tables import write_csv
from ldsearch.reports.tune import draw_tuning, tuning_table
from ldsearch.runs import SUPERNET_FILE, claim
from ldsearch.training.checkpoints import Writing
from ldsearch.tuning import ends
from ldsearch.workflows.searching.spaces import kinds_of
from ldsearch.workflows.tuning.tune_study import Attempt, Study, alone
from ldsearch.workflows.tuning.variation import parse_variations, varied
from ldsearch.workflows.tuning.yardstick import Yardstick, area_of, cost_range

TUNE_FILE = "tune.json"


class Watcher(Protocol):
    """Is told what a study does."""

    def started(self, attempt: Attempt, finished: Sequence[Attempt]) -> None:
        """A training starts, or goes on, after those that are finished."""

    def ended(self, attempt: Attempt) -> None:
        """It was scored, or failed."""


class _Unwatched:
    def started(self, attempt: Attempt, finished: Sequence[Attempt]) -> None:
        """Say nothing."""

    def ended(self, attempt: Attempt) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Tuning:
    """A finished study.

    Args:
        folder: Where tune.csv, tune.png, tune.json and tune.db lie.
        attempts: Every training, in order.
        best: The one with the best area on the search rows.
        supernet: Its folder.
        metric: What the scores are.
        space: Name of the space whose regular configurations were measured.
        low: The cost range starts at this share of the full model's MACs.
        held_out: The best one's area on the report rows, which chose nothing; None where there are none.
        notes: What of the measured sub-networks the best one was not trained for.
    """

    folder: Path
    attempts: tuple[Attempt, ...]
    best: Attempt
    supernet: Path
    metric: str
    space: str
    low: float
    held_out: Interval | None
    notes: tuple[str, ...]


def tune(
    folder: str | Path,
    options: TrainOptions,
    vary: Sequence[str],
    *,
    trials: int = 20,
    evaluations: int = 20,
    genes: str | None = None,
    keep_all: bool = False,
    watcher: Watcher | None = None,
) -> Tuning:
    """Train with other hyperparameters again and again; the same call goes on, more ``trials`` extend it.

    The search rows choose; the report rows score the chosen supernet, once. The training seed is the same
    for all.

    Args:
        folder: Where the study lies; a training lies in ``trial-<number>`` below it.
        options: What is not varied, and the seed.
        vary: ``name=low:high``, ``name=low:high:log`` or ``name=a,b,c``, names as ``kind_of`` knows them.
        trials: Trainings in all, failed ones included.
        evaluations: Sub-networks that each supernet is measured by.
        genes: What of them differs, as ``search_space`` takes it; None: what was trained.
        keep_all: Keep every supernet, not the best alone.
        watcher: Is told what happens.

    Raises:
        LdsearchError: One line for bad options, values or folders, or where every training failed.
        Interrupted: After SIGINT or SIGTERM; the same call goes on.
    """
    folder, watcher = Path(folder), watcher or _Unwatched()
    distributions = parse_variations(vary)
    _check(folder, options, {name: ends(values) for name, values in distributions.items()}, genes)
    if trials < 1 or evaluations < 2:
        raise RunError("a study needs a trial or more, each measured by two evaluations or more")
    bounds = ends(distributions["drop_bound"]) if "drop_bound" in distributions else ()
    yardstick = Yardstick(evaluations, genes, max(map(float, bounds), default=None), options.parity)
    identity = {
        "options": {**options.identity(), "source": asdict(options.source)},
        "vary": {name: json.loads(distribution_to_json(values)) for name, values in distributions.items()},
        "measured_by": asdict(yardstick),
    }
    with interruptible() as stop:
        claim(folder, TUNE_FILE, identity)
        with Writing(folder), alone(folder):
            study = Study(folder, distributions, options.seed)
            while len(finished := study.finished()) < trials:
                stop.check()
                attempt = study.next()
                watcher.started(attempt, finished)
                tried = _tried(folder, options, attempt, yardstick)
                _check_rows(folder, tried, finished)
                study.finish(tried)
                watcher.ended(tried)
                if not keep_all:
                    _sweep(folder, [*finished, tried])
            if not keep_all:
                _sweep(folder, finished)
            return _report(folder, finished, yardstick, identity)


def _check(folder: Path, options: TrainOptions, tried: Mapping[str, Any], genes: str | None) -> None:
    """Refuse before anything runs what the Trainer would refuse."""
    training_arguments(folder, options)
    for name, values in tried.items():
        for value in values:
            training_arguments(folder, varied(options, {name: value}))
    if genes is not None:
        kinds_of(genes)
    if genes is None and (changing := {"strategy", "drop_groups"} & tried.keys()):
        raise TrainingError(f"--vary {changing.pop()}: say by --genes what all are measured by")


def _tried(folder: Path, options: TrainOptions, attempt: Attempt, yardstick: Yardstick) -> Attempt:
    start, place = time.monotonic(), folder / f"trial-{attempt.number}"

    def failed(reason: str) -> Attempt:
        return replace(attempt, seconds=time.monotonic() - start, reason=reason)

    try:
        if not (place / SUPERNET_FILE).exists():
            train_supernet(place, varied(options, attempt.parameters))
        bench = Workbench.open(place)
    except (TrainingError, torch.OutOfMemoryError) as error:
        return failed(one_line(error))
    if not _is_finite(bench):
        return failed("training diverged: weights or outputs are not finite")
    area = area_of(bench, yardstick.line(bench)[1])
    if not math.isfinite(area.mean):
        return failed("training diverged: the scores are not finite")
    return replace(
        attempt,
        area=area,
        higher_is_better=bench.task.metric.higher_is_better,
        seconds=time.monotonic() - start,
        rows={name: split["fingerprint"] for name, split in bench.record.splits.items()},
    )


def _is_finite(bench: Workbench) -> bool:
    """A score does not tell: the largest of NaN logits is the first of them, and that is often right."""
    weights = all(bool(torch.isfinite(weight).all()) for weight in bench.supernet.model.parameters())
    return weights and not any(np.isnan(rows).any() for rows in bench.evaluator.outputs(bench.full))


def _check_rows(folder: Path, tried: Attempt, finished: Sequence[Attempt]) -> None:
    if tried.rows and any(other.rows not in ({}, tried.rows) for other in finished):
        raise RunError(f"the data are not those {folder} began with: choose another --name")


def _best(attempts: Sequence[Attempt]) -> Attempt | None:
    """The first of the best."""
    scored = [(attempt.value, attempt) for attempt in attempts if attempt.value is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _sweep(folder: Path, attempts: Sequence[Attempt]) -> None:
    """Remove what was beaten or failed."""
    best = _best(attempts)
    for attempt in attempts:
        if attempt is not best:
            shutil.rmtree(folder / f"trial-{attempt.number}", ignore_errors=True)


def _report(
    folder: Path, attempts: Sequence[Attempt], yardstick: Yardstick, identity: Mapping[str, Any]
) -> Tuning:
    best = _best(attempts)
    if best is None:
        raise RunError(f"every training failed, the last one so: {attempts[-1].reason}")
    bench = Workbench.open(folder / f"trial-{best.number}")
    space, trials = yardstick.line(bench)
    low, high = cost_range(bench, trials)
    held_out = None if bench.held_out is None else area_of(bench, trials, held_out=True)
    cheapest = min(trials, key=lambda trial: trial.costs["macs"]).subnet
    found = Tuning(
        folder,
        tuple(attempts),
        best,
        folder / f"trial-{best.number}",
        bench.task.metric.name,
        space,
        low / high,
        held_out,
        tuple(bench.untrained(cheapest)),
    )
    _write(found, identity, bench.evaluator.examples)
    return found


def _write(found: Tuning, identity: Mapping[str, Any], examples: int) -> None:
    folder, table = found.folder, tuning_table([asdict(attempt) for attempt in found.attempts])
    write_csv(table, folder / "tune.csv")
    title = f"{folder.name}: {len(table)} trainings, area from {found.low:.2f} of the MACs"
    logarithmic = {name for name, one in identity["vary"].items() if one["attributes"].get("log")}
    figure = draw_tuning(
        table, list(identity["vary"]), logarithmic, title, found.metric, found.best.higher_is_better
    )
    save_figure(figure, folder / "tune.png")
    write_json(
        folder / TUNE_FILE,
        {
            "identity": dict(identity),
            "metric": found.metric,
            "space": found.space,
            "cost_range": [found.low, 1.0],
            "chosen_by": {"split": "search", "examples": examples},
            "trials": [asdict(attempt) for attempt in found.attempts],
            "best": found.best.number,
            "supernet": os.path.relpath(found.supernet, folder),
            "held_out": None if found.held_out is None else {"split": "report", **asdict(found.held_out)},
            "versions": versions(),
        },
    )
