"""Contenders of a comparison: strategies searched on a supernet, finished runs and their controls, limits."""

import gc
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.errors import RunError
from ldsearch.options import Evolve
from ldsearch.runs.run import SUPERNET_FILE, Run
from ldsearch.runs.target import Target
from ldsearch.search.loop import CostFunction, SearchResult
from ldsearch.search.run import plan_search, run_strategy
from ldsearch.search.spaces import kinds_of
from ldsearch.search.strategies import SEARCHES, search_named
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record
from ldsearch.trials.intervals import Statistics
from ldsearch.trials.trial import Score, Trial
from ldsearch.work.progress import Progress

RANDOM = "random"


def read_entry(text: str) -> Evolve:
    """``"surrogate"``, ``"surrogate:depth+lengths"`` or ``"every-other"`` as the options of ``evolve``.

    Raises:
        RunError: If there is no such strategy, or a rule is given genes.
        SpaceError: If a gene is unknown.
    """
    strategy, _, genes = text.partition(":")
    search_named(strategy)
    if genes and strategy not in SEARCHES:
        raise RunError(f"{strategy} is a rule that knows what it chooses: it takes no genes")
    if genes:
        kinds_of(genes)
    return Evolve(strategy=strategy, genes=genes or None)


def control_of(text: str) -> str:
    """Random search of an entry's genes; of a rule's, of depths or of lengths."""
    strategy, colon, genes = text.partition(":")
    if strategy in SEARCHES:
        return f"{RANDOM}{colon}{genes}"
    return f"{RANDOM}:{'lengths' if strategy == 'constant-ratio' else 'depth'}"


@dataclass(frozen=True)
class Contender:
    """One line of a comparison: the searches of a supernet by a strategy, a finished run, or its control.

    Args:
        text: As the tables name it.
        results: What was measured, for each seed.
        control: The ``text`` of what it is to be better than; None where there is nothing.
        seeded: Whether it is a search that draws, by whose cost others are limited; rules are not.
        finished: Whether it was finished before: of such, others have no more evaluations either.
        held_out: Of one sub-network with weights of its own: what each row that chose nothing says of it.
            None: the supernet's evaluator says it of what is chosen.
    """

    text: str
    results: tuple[SearchResult, ...]
    control: str | None
    seeded: bool
    finished: bool = False
    held_out: Statistics | None = None


@dataclass(frozen=True)
class Limit:
    """How far into every search a choice looks.

    Args:
        name: ``"evaluations"`` or ``"passes"``.
        evaluations: The most trials.
        macs: The most multiply-accumulates, per example and one sub-network after the other.
    """

    name: str
    evaluations: float
    macs: float

    @staticmethod
    def of(contenders: Sequence[Contender]) -> "tuple[Limit, Limit]":
        """Equal evaluations and equal cost among what is measured on the same rows."""
        seeded = [(own, result) for own in contenders if own.seeded for result in own.results]
        counts = [len(result.trials) for own, result in seeded if own.finished]
        spent = [sum(trial.costs["macs"] for trial in result.trials) for _, result in seeded]
        return (
            Limit("evaluations", min(counts, default=math.inf), math.inf),
            Limit("passes", math.inf, min(spent, default=math.inf)),
        )

    def first(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """The trials within it, in the order they were measured."""
        spent = itertools.accumulate(trial.costs["macs"] for trial in trials)
        affordable = sum(cost <= self.macs * (1 + 1e-9) for cost in spent)
        return trials[: int(min(self.evaluations, affordable))]


@dataclass(frozen=True)
class Subject:
    """A supernet on the rows that choose.

    Args:
        folder: The supernet's.
        split: The rows.
        runs: Where its measurements are kept.
    """

    folder: Path
    split: str
    runs: Path

    @classmethod
    def of(cls, run: Run) -> "Subject":
        """The supernet and rows that a run searched."""
        return cls(run.supernet.resolve(), str(run.fields["split"]), run.measurements.resolve())


class Benches:
    """Opens one supernet after the other: each keeps gigabytes of states for its next generation.

    Args:
        data: Read the data from here instead of where training read it.
    """

    def __init__(self, data: str | None) -> None:
        self.data = data
        self._open: tuple[Subject, Bench] | None = None

    def open(self, subject: Subject) -> Bench:
        """The one that is open, or another in its place.

        Raises:
            LdsearchError: As ``Bench.open``.
        """
        if self._open is None or self._open[0] != subject:
            self._open = None
            gc.collect()
            bench = Bench.open(subject.folder, subject.split, self.data, subject.runs)
            self._open = (subject, bench)
        return self._open[1]


def read_runs(folders: Sequence[Path]) -> dict[str, Run]:
    """Runs by the names that tables give them.

    Raises:
        RunError: If one is none, is named twice, or its supernet is gone.
    """
    runs = Run.open_all(folders)
    if gone := [run for run in runs if not (run.supernet / SUPERNET_FILE).is_file()]:
        raise RunError(f"the supernet of {gone[0].folder} is no longer at {gone[0].supernet}")
    for run in runs:
        run.check_rows()
    clear = len({run.name for run in runs}) == len(runs)
    return {run.name if clear else f"{index} {run.name}": run for index, run in enumerate(runs, 1)}


def of_run(bench: Bench, text: str, run: Run) -> list[Contender]:
    """A run, and its random control where it has one; every trial may be chosen.

    Raises:
        RunError: If it searched other weights or rows.
        SubnetError: If a row of its tables holds no sub-network.
    """
    if run.identity.get("fingerprint") != bench.evaluator.fingerprint:
        raise RunError(
            f"{run.folder} searched other weights or rows, or by other versions of ldsearch, torch or "
            "transformers: search again to compare it"
        )
    tables, control, seeded = {text: run.trials}, None, "seed" in run.identity
    if run.controls is not None and (run.controls["strategy"] == RANDOM).any():
        control = f"{text}, {RANDOM}"
        tables[control] = run.controls[run.controls["strategy"] == RANDOM]
    contenders = []
    for name, table in tables.items():
        trials = _trials_of(table, bench.macs, bench.task.metric.higher_is_better)
        result = SearchResult(trials, "finished", proposed={trial.subnet for trial in trials})
        contenders.append(Contender(name, (result,), control if name == text else None, seeded, True))
    return contenders


def trained_alone(folder: Path) -> bool:
    """Whether a folder holds a model of which one sub-network was trained, and no search run."""
    return (folder / SUPERNET_FILE).is_file() and read_record(folder).subnet is not None


def of_alone(bench: Bench, subject: Subject, folders: Sequence[Path]) -> list[Contender]:
    """Sub-networks that were trained alone, measured on a subject's rows with their own weights.

    Models that have other rows are left out.
    """
    contenders = []
    for folder in folders:
        subnet, rows = Target.resolve(folder).subnet, read_record(folder).splits.get(subject.split, {})
        if rows.get("fingerprint") != bench.task.splits[subject.split].fingerprint:
            continue
        own = Bench.open(folder, subject.split, None, subject.runs, bench.task)
        (trial,) = own.evaluator([subnet])
        result = SearchResult([trial], "finished", proposed={subnet})
        held_out = (own.held_out or own.evaluator).statistics(subnet)
        contenders.append(Contender(folder.resolve().name, (result,), None, seeded=False, held_out=held_out))
    return contenders


def _trials_of(table: pd.DataFrame, macs: CostFunction, higher_is_better: bool) -> list[Trial]:
    """Trials of a table such as ``trials.csv``; MACs are computed, not measured: as counted today."""
    subnets = [Subnet.from_json(text) for text in table["subnet"]]
    return [
        Trial(
            subnet=subnet,
            metric=str(row["metric"]),
            score=Score(float(row["score"]), higher_is_better),
            costs={"macs": float(cost)},
            examples=int(row["examples"]),
            split=str(row["split"]),
            seconds=float(row["seconds"]),
            fingerprint=str(row["fingerprint"]),
        )
        for subnet, cost, row in zip(subnets, macs(subnets), table.to_dict("records"), strict=True)
    ]


def of_strategies(
    bench: Bench, entries: Sequence[str], evaluations: int, seeds: int, progress: Progress
) -> list[Contender]:
    """Search a supernet with every strategy and its control.

    Raises:
        LdsearchError: One line for a gene or rule that does not fit it.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    contenders = []
    for entry in dict.fromkeys([*entries, *map(control_of, entries)]):
        options = read_entry(entry)
        is_search = options.strategy in SEARCHES
        if is_search:
            options = replace(options, evaluations=evaluations)
        results = []
        for seed in range(seeds if search_named(options.strategy).draws else 1):
            spec = plan_search(bench, replace(options, seed=seed))
            # Searches are compared after equally many evaluations: none ends for standing still.
            spec = replace(spec, search=replace(spec.search, patience=None))
            results.append(
                run_strategy(bench, spec, spec.search.build(spec.context), spec.evaluations, progress)
            )
        control = control_of(entry)
        contenders.append(Contender(entry, tuple(results), None if entry == control else control, is_search))
    return contenders
