"""Contenders of a comparison: strategies searched on a supernet, and finished runs with their controls."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ldsearch.bench import Bench
from ldsearch.commands.comparison import RANDOM, Comparison, Contender
from ldsearch.commands.options import Evolve
from ldsearch.commands.searching import plan_search, run_strategy
from ldsearch.errors import RunError
from ldsearch.interruption import Stop
from ldsearch.progress import Progress, Stoppable
from ldsearch.runs import SUPERNET_FILE, Run
from ldsearch.search.loop import CostFunction, SearchResult
from ldsearch.search.strategies import RULES
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial


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


def read_runs(folders: Sequence[str]) -> dict[str, Run]:
    """Runs by the names that tables give them.

    Raises:
        RunError: If one is none, is named twice, or its supernet is gone.
    """
    runs = [Run.open(Path(folder)) for folder in folders]
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise RunError("a run is named twice")
    if gone := [run for run in runs if not (run.supernet / SUPERNET_FILE).is_file()]:
        raise RunError(f"the supernet of {gone[0].folder} is no longer at {gone[0].supernet}")
    clear = len({run.name for run in runs}) == len(runs)
    return {run.name if clear else f"{index} {run.name}": run for index, run in enumerate(runs, 1)}


def of_run(bench: Bench, text: str, run: Run) -> list[Contender]:
    """A run, and its random control where it has one.

    Raises:
        RunError: If it searched other weights or rows.
    """
    if run.identity.get("fingerprint") != bench.evaluator.fingerprint:
        raise RunError(
            f"{run.folder} searched other weights or rows, or by other versions of ldsearch, torch or "
            "transformers: search again to compare it"
        )
    tables = {text: run.trials}
    control = None
    if run.controls is not None and (run.controls["strategy"] == RANDOM).any():
        control = f"{text}, {RANDOM}"
        tables[control] = run.controls[run.controls["strategy"] == RANDOM]
    higher = bench.task.metric.higher_is_better
    return [
        Contender(
            name,
            (result_of(table, bench.macs, higher),),
            control=control if name == text else None,
            seeded="seed" in run.identity,
            finished=True,
        )
        for name, table in tables.items()
    ]


def of_strategies(bench: Bench, asked: Comparison, progress: Progress, stop: Stop) -> list[Contender]:
    """Search a supernet with every strategy.

    Raises:
        LdsearchError: One line for a gene or rule that does not fit it.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    watched = Stoppable(progress, stop)
    contenders: list[Contender] = []
    for entry in asked.all_entries:
        progress.phase(f"{bench.folder.name}: {entry.text}", None)
        rule = entry.strategy in RULES
        options = Evolve(
            strategy=entry.strategy, genes=entry.genes, evaluations=None if rule else asked.evaluations
        )
        results = []
        # What a rule goes by may take a training: only one that draws is made for every seed.
        for seed in range(asked.seeds if not rule or RULES[entry.strategy].draws else 1):
            spec = plan_search(bench, replace(options, seed=seed))
            spec = replace(spec, search=replace(spec.search, patience=None))
            strategy = spec.search.build(spec.context)
            results.append(run_strategy(bench, spec, strategy, spec.evaluations, watched))
        control = None if entry == entry.control else entry.control.text
        contenders.append(Contender(entry.text, tuple(results), control, not rule))
    return contenders


def result_of(table: pd.DataFrame, macs: CostFunction, higher_is_better: bool) -> SearchResult:
    """The search that a table of trials records; every trial may be chosen.

    Args:
        table: As ``trials.csv``, of one strategy.
        macs: Costs are computed, not measured: as they are counted today.
        higher_is_better: The direction of its scores.

    Raises:
        SubnetError: If a row holds no sub-network.
    """
    subnets = [Subnet.from_json(text) for text in table["subnet"]]
    trials = [
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
    return SearchResult(trials, "finished", proposed=set(subnets))
