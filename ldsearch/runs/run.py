"""Run folders: which one is newest, which one may be written, and what they hold, as typed objects."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ldsearch.disk.files import read_fields, write_json
from ldsearch.disk.records import as_record, typed
from ldsearch.errors import LdsearchError, RunError, SupernetError, one_line
from ldsearch.reports.held_out import HELD_OUT_COLUMNS
from ldsearch.reports.tables import COLUMNS, read_table, write_csv
from ldsearch.subnet import Subnet
from ldsearch.trials.goal import Goal
from ldsearch.trials.intervals import Interval

SUPERNET_FILE = "supernet.json"
TRAINING_FILE = "training.json"
RUN_FILE = "run.json"
BEST_FILE = "best.json"
FRONTIER_FILE = "frontier.csv"
HEALTH_FILE = "health.json"
CACHE_FILE = "measurements.db"
LATENCY_FILE = "latency.csv"
# What ldsearch compress makes, and the search run in it.
COMPRESSED_FILE = "compress.json"
SEARCH_FOLDER = "search"
# What run.json of a finished search holds, beside a strategy's own facts.
_RUN_FIELDS: Mapping[str, Any] = {
    "identity": Mapping[str, Any],
    "options": Mapping[str, Any],
    "supernet": str,
    "measurements": str,
    "split": str,
    "stopped": str,
    "trials": int,
    "frontier": int,
    "costs": tuple[str, ...],
    "controls": Mapping[str, int],
    "held_out": Mapping[str, Any] | None,
    "this_call": Mapping[str, Mapping[str, float]],
    "peak_memory_bytes": int,
    "measured_as": str,
    "workload": Mapping[str, Any],
    "versions": Mapping[str, str],
}
_LATENCY_WORDS = ("subnet", "runtime", "full_runtime", "phase", "length")  # a length may be "data"
_LATENCY_COLUMNS = (
    *("subnet", "runtime", "phase", "batch", "length", "median_ms", "low_ms", "high_ms", "ratio"),
    *("full_ms", "full_runtime", "macs_ratio", "not_faster", "noisy"),
)
_GOAL = {"objective": str, "budget": str, "at_least": str, "most_accurate": bool}


def newest_supernet(runs: Path) -> Path:
    """The supernet that was finished last; a model with one sub-network trained on its own is none.

    Raises:
        SupernetError: If there is none.
    """
    records = sorted(runs.glob(f"*/{SUPERNET_FILE}"), key=lambda path: path.stat().st_mtime)
    found = [path for path in records if read_json(path).get("subnet") is None]
    if not found:
        raise SupernetError(f"no supernet in {runs}/: train one with 'ldsearch train-supernet'")
    return found[-1].parent


def run_within(folder: Path) -> Path:
    """The search run of what ``ldsearch compress`` made; any other folder as it is."""
    if not (folder / COMPRESSED_FILE).is_file():
        return folder
    return folder / str(read_json(folder / COMPRESSED_FILE).get("search", SEARCH_FOLDER))


def beside(folder: Path, relative: str) -> Path:
    """A path that a folder's files name as seen from the folder, so that both may move together."""
    return Path(os.path.normpath(folder / relative))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder.

    Raises:
        RunError: If it is missing or damaged.
    """
    try:
        return read_fields(path)
    except FileNotFoundError:
        raise RunError(f"{path.parent} is not a run: it has no {path.name}") from None


@dataclass(frozen=True)
class HeldOutScore:
    """A sub-network's score on rows that chose nothing.

    Args:
        split: Their split.
        score: The sub-network's.
        full_score: The full model's.
        difference: Score minus full score, paired bootstrap.
    """

    split: str
    score: float
    full_score: float
    difference: Interval


@dataclass(frozen=True)
class Choice:
    """A sub-network of a search, as ``best.json`` has it.

    Args:
        subnet: The sub-network.
        selector: What it was taken for, in words (``"budget 0.4"``).
        metric: Name of the score.
        score: Its score on the rows that chose it.
        full_score: The full model's there.
        split: The split of these rows.
        examples: How many.
        held_out: Its score on rows that chose nothing; None where there are none.
        costs: By name.
        full_costs: The full model's.
        fingerprint: What the measurement belongs to.
        supernet: The supernet's folder, relative to the run's.
    """

    subnet: Subnet
    selector: str
    metric: str
    score: float
    full_score: float
    split: str
    examples: int
    held_out: HeldOutScore | None
    costs: Mapping[str, float]
    full_costs: Mapping[str, float]
    fingerprint: str
    supernet: str

    def __post_init__(self) -> None:
        for name in self.costs:
            if not (math.isfinite(self.costs[name]) and self.full_costs.get(name, math.nan) > 0):
                raise RunError(f"no {name} of the sub-network or of the full model")
        if "macs" not in self.costs:
            raise RunError("no macs of the sub-network")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "subnet": json.loads(self.subnet.to_json())}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str) -> "Choice":
        """The inverse.

        Raises:
            RunError: If ``source`` is damaged: a field is missing or of another kind.
        """
        return as_record(cls, fields, source)

    def describe(self) -> str:
        """The score, the rows it rests on, and what chose it, in words."""
        chosen_by = (
            f"{self.metric} {self.score:.4f} on {self.examples} {self.split} examples, by which it was "
            f"chosen (full model {self.full_score:.4f})"
        )
        if self.held_out is None:
            return f"{chosen_by}: optimistic"
        held, difference = self.held_out, self.held_out.difference
        return (
            f"{self.metric} {held.score:.4f} on {difference.examples} {held.split} examples that chose "
            f"nothing (full model {held.full_score:.4f}, difference {difference.mean:+.4f}, 95% interval "
            f"{difference.low:+.4f} to {difference.high:+.4f}); {chosen_by}"
        )


@dataclass(frozen=True)
class Run:
    """A finished search, as its folder has it.

    Args:
        folder: The run's.
        fields: Its ``run.json``.
        identity: Fields that a run and its continuation share.
        options: The options that made it, without those that had their defaults.
        costs: Names of those that were minimised; the reports go along the first.
        supernet: Where the supernet lay.
        measurements: Where its measurements are kept.
        best: What was taken.
    """

    folder: Path
    fields: Mapping[str, Any]
    identity: Mapping[str, Any]
    options: Mapping[str, Any]
    costs: tuple[str, ...]
    supernet: Path
    measurements: Path
    best: Choice

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Read a run's folder; its tables are read on first use.

        Raises:
            RunError: If it holds no finished search, or is damaged.
        """
        folder = run_within(Path(folder))
        if (folder / SUPERNET_FILE).is_file():
            raise RunError(f"{folder} is a model, not a search run: name a run that searched it")
        if not (folder / RUN_FILE).is_file():
            raise RunError(f"{folder} is not a search run: it has no {RUN_FILE}")
        path = folder / RUN_FILE
        fields = read_json(path)
        if (folder / HEALTH_FILE).is_file():
            raise RunError(f"{folder} is a health run: name a search run, whose report shows it")
        if "trials" not in fields or not (folder / BEST_FILE).is_file():
            raise RunError(f"{folder} is an unfinished run: run the same command again to go on")
        best = Choice.from_dict(read_json(folder / BEST_FILE), str(folder / BEST_FILE))
        if "options" not in fields:
            raise RunError(
                f"{folder} was made by ldsearch 0.1: run its command again; nothing measured is lost"
            )
        try:
            checked = {name: typed(fields[name], kind, name) for name, kind in _RUN_FIELDS.items()}
            for name in _GOAL.keys() & checked["options"].keys():
                typed(checked["options"][name], _GOAL[name], f"options.{name}")
        except (KeyError, ValueError) as error:
            raise RunError(f"{path} is damaged: {one_line(error)}") from error
        if strange := [name for name in checked["costs"] or ("costs",) if name not in best.costs]:
            raise RunError(f"{path} is damaged: {BEST_FILE} has no cost {strange[0]}")
        supernet, measurements = (beside(folder, checked[name]) for name in ("supernet", "measurements"))
        return cls(
            folder,
            {**fields, **checked},
            checked["identity"],
            checked["options"],
            checked["costs"],
            supernet,
            measurements,
            best,
        )

    @classmethod
    def open_all(cls, folders: Sequence[str | Path]) -> "list[Run]":
        """Read several runs.

        Raises:
            RunError: If one holds no finished search or is damaged, or is named twice.
        """
        runs = [cls.open(folder) for folder in folders]
        if len({run.folder.resolve() for run in runs}) < len(runs):
            raise RunError("a run is named twice")
        return runs

    @property
    def name(self) -> str:
        """The folder's own name; of a search within what ``ldsearch compress`` made, that one's."""
        folder = self.folder.resolve()
        return (folder.parent if (folder.parent / COMPRESSED_FILE).is_file() else folder).name

    @property
    def full_model(self) -> Path | None:
        """Folder of the full model to compare with, where that is not the supernet's."""
        name = self.fields.get("full_model")
        return None if name is None else beside(self.folder, str(name))

    @cached_property
    def goal(self) -> Goal:
        """The objective, and which trial was taken.

        Raises:
            LdsearchError: If a cost that it names is not registered here.
        """
        names = ("objective", "budget", "at_least", "most_accurate")
        return Goal.parse(**{name: self.options[name] for name in names if name in self.options})

    @cached_property
    def trials(self) -> pd.DataFrame:
        """``trials.csv``; the first row is the full model.

        Raises:
            RunError: If it is missing or damaged, as with every table.
        """
        return self._table("trials.csv")

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """``frontier.csv``, cheapest first."""
        held = list(HELD_OUT_COLUMNS) if self.best.held_out else []
        return self._table(FRONTIER_FILE, held)

    @cached_property
    def controls(self) -> pd.DataFrame | None:
        """``controls.csv``; None where there were no controls."""
        if not self.fields.get("controls"):
            return None
        return self._table("controls.csv")

    @cached_property
    def latency(self) -> pd.DataFrame | None:
        """``latency.csv``; None where nothing was timed."""
        path = self.folder / LATENCY_FILE
        return read_table(path, _LATENCY_COLUMNS, _LATENCY_WORDS) if path.is_file() else None

    def _table(self, name: str, more: Sequence[str] = ()) -> pd.DataFrame:
        table = read_table(self.folder / name, [*COLUMNS, *self.costs, *more])
        for cost in self.costs:
            if not np.isfinite(table[cost]).all():
                raise RunError(f"{self.folder / name} is damaged: a row has no {cost}")
        return table

    def check_rows(self) -> None:
        """Refuse tables with a row that names what the model, their first trial, has not.

        Raises:
            RunError: If one does, or holds no sub-network.
        """
        tables = {"trials.csv": self.trials, FRONTIER_FILE: self.frontier, "controls.csv": self.controls}
        for name, table in tables.items():
            if table is None:
                continue
            try:
                full = Subnet.from_json(self.trials["subnet"].iloc[0]).stacks()
                for text in table["subnet"]:
                    for stack, part in Subnet.from_json(text).stacks().items():
                        if stack not in full or not {*part.blocks} <= {*full[stack].blocks}:
                            raise RunError(f"{text} is none of this model's")
            except LdsearchError as error:
                raise RunError(f"{self.folder / name} is damaged: {one_line(error)}") from error

    @cached_property
    def subnets(self) -> list[Subnet]:
        """The frontier's, cheapest first.

        Raises:
            RunError: If a row holds none.
        """
        try:
            return [Subnet.from_json(text) for text in self.frontier["subnet"]]
        except LdsearchError as error:
            raise RunError(f"{self.folder / FRONTIER_FILE} is damaged: {one_line(error)}") from error

    def points(self) -> list[Choice]:
        """The frontier's sub-networks, cheapest first, each as if it had been taken.

        Raises:
            RunError: If a number is missing.
        """
        choices = []
        try:
            for row, subnet in zip(self.frontier.to_dict("records"), self.subnets, strict=True):
                costs = {name: float(row[name]) for name in self.best.costs}
                held = self.best.held_out
                if held is not None:
                    mean, low, high = (float(row[f"difference{end}"]) for end in ("", "_low", "_high"))
                    difference = Interval(mean, low, high, int(row["held_out_examples"]))
                    score = float(row["held_out_score"])
                    held = HeldOutScore(str(row["held_out_split"]), score, held.full_score, difference)
                fields = {**vars(self.best), "subnet": subnet, "selector": "on its frontier"}
                choices.append(
                    Choice(**{**fields, "score": float(row["score"]), "held_out": held, "costs": costs})
                )
        except (KeyError, ValueError, LdsearchError) as error:
            raise RunError(f"{self.folder / FRONTIER_FILE} is damaged: {one_line(error)}") from error
        return choices

    def own_points(self) -> list[Choice]:
        """``points`` without the full model where that is not the supernet's: it was only compared with.

        Raises:
            RunError: As ``points``.
        """
        points = self.points()
        if self.full_model is None:
            return points
        return [point for point in points if point.costs["macs"] < self.best.full_costs["macs"]]


@dataclass(frozen=True)
class Study:
    """A measurement of a supernet other than a search: its health, or the importance of its blocks.

    Args:
        folder: Where its files lie: ``<name>.json``, ``<name>.csv``, ``<name>.png``.
        name: ``"health"`` or ``"importance"``.
        fields: Its JSON.
        table: Its CSV.
    """

    folder: Path
    name: str
    fields: Mapping[str, Any]
    table: pd.DataFrame

    @classmethod
    def open(cls, marker: Path, columns: Sequence[str]) -> "Study":
        """Read it, given its JSON file and the columns of its table.

        Raises:
            RunError: If a file is missing or damaged.
        """
        table = read_table(marker.with_suffix(".csv"), columns)
        return cls(marker.parent, marker.stem, read_json(marker), table)

    def write(self) -> None:
        """Write the table, then the JSON, which marks it as finished."""
        write_csv(self.table, self.folder / f"{self.name}.csv")
        write_json(self.folder / f"{self.name}.json", dict(self.fields))
