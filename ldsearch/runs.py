"""Run folders: which one is newest, which one may be written, and what they hold, as typed objects."""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.errors import LdsearchError, RunError, SupernetError, one_line
from ldsearch.files import write_json
from ldsearch.goal import Goal
from ldsearch.intervals import Interval
from ldsearch.reports.held_out import HELD_OUT_COLUMNS
from ldsearch.reports.tables import COLUMNS, write_csv
from ldsearch.subnet import Subnet

SUPERNET_FILE = "supernet.json"
TRAINING_FILE = "training.json"
RUN_FILE = "run.json"
BEST_FILE = "best.json"
FRONTIER_FILE = "frontier.csv"
HEALTH_FILE = "health.json"
CACHE_FILE = "measurements.db"


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


def claim(
    folder: Path, marker: str, identity: dict[str, Any], options: Mapping[str, Any] | None = None
) -> bool:
    """Make the folder this run's own, or go on with the same run, which other workers may write too.

    Args:
        folder: Where the run writes.
        marker: The file that carries the identity.
        identity: What makes two runs the same run.
        options: The options that the run was started with, for the record.

    Returns:
        Whether the folder is new; False where a run goes on.

    Raises:
        RunError: If the folder holds anything else (nothing is touched then) or cannot be written.
    """
    path = folder / marker
    identity = json.loads(json.dumps(identity))  # as it reads back
    if not path.is_file():
        # What a killed process left of its claim, or what another is making of it, is nobody's.
        others = folder.is_dir() and any(
            not (file.name.startswith(".") and file.name.lstrip(".").startswith(f"{marker}."))
            for file in folder.iterdir()
        )
        foreign = others or (folder.exists() and not folder.is_dir())
        # Another worker of the same run may have made it meanwhile.
        if foreign and not path.is_file():
            raise RunError(f"{folder} is not empty and holds another run: choose another --name")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if _write_new(path, {"identity": identity, **({"options": options} if options else {})}):
                return True
        except OSError as error:
            raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    found = read_json(path).get("identity")
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: it holds no identity")
    different = sorted(key for key in {*found, *identity} if found.get(key) != identity.get(key))
    if different:
        raise RunError(
            f"{folder} holds another run (its {', '.join(different)} differ): choose another --name"
        )
    return False


def beside(folder: Path, relative: str) -> Path:
    """A path that a folder's files name as seen from the folder, so that both may move together."""
    return Path(os.path.normpath(folder / relative))


def _write_new(path: Path, fields: dict[str, Any]) -> bool:
    """Write a file that is whole from the start; False where there is one: of two workers one is first."""
    made = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_json(made, fields)
    try:
        os.link(made, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        write_json(path, fields)
    finally:
        made.unlink()
    return True


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder.

    Raises:
        RunError: If it is missing or damaged.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path.parent} is not a run: it has no {path.name}") from None
    except (ValueError, IsADirectoryError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(fields, dict):
        raise RunError(f"{path} is damaged: it holds no object")
    return fields


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

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "subnet": json.loads(self.subnet.to_json())}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Choice":
        """The inverse.

        Raises:
            KeyError, TypeError: If a field is missing or of another kind.
            SubnetError: If it holds no sub-network.
        """
        held = fields["held_out"]
        if held is not None:
            held = HeldOutScore(**{**held, "difference": Interval(**held["difference"])})
        subnet = Subnet.from_json(json.dumps(fields["subnet"]))
        return cls(**{**fields, "subnet": subnet, "held_out": held})

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
        folder = Path(folder)
        if (folder / SUPERNET_FILE).is_file():
            raise RunError(f"{folder} is a model, not a search run: name a run that searched it")
        if not (folder / RUN_FILE).is_file():
            raise RunError(f"{folder} is not a search run: it has no {RUN_FILE}")
        fields = read_json(folder / RUN_FILE)
        if (folder / HEALTH_FILE).is_file():
            raise RunError(f"{folder} is a health run: name a search run, whose report shows it")
        if "trials" not in fields or not (folder / BEST_FILE).is_file():
            raise RunError(f"{folder} is an unfinished run: run the same command again to go on")
        try:
            best = Choice.from_dict(read_json(folder / BEST_FILE))
        except (KeyError, TypeError, LdsearchError) as error:
            raise RunError(f"{folder / BEST_FILE} is damaged: {one_line(error)}") from error
        if "options" not in fields:
            raise RunError(
                f"{folder} was made by ldsearch 0.1: run its command again; nothing measured is lost"
            )
        try:
            supernet, measurements = (
                beside(folder, str(fields[name])) for name in ("supernet", "measurements")
            )
            costs = tuple(fields["costs"])
            return cls(
                folder, fields, fields["identity"], fields["options"], costs, supernet, measurements, best
            )
        except KeyError as error:
            raise RunError(f"{folder / RUN_FILE} is damaged: {one_line(error)}") from error

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
        """The folder's own name."""
        return self.folder.resolve().name

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
        return read_table(self.folder / "trials.csv", list(COLUMNS))

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """``frontier.csv``, cheapest first."""
        held = list(HELD_OUT_COLUMNS) if self.best.held_out else []
        return read_table(self.folder / FRONTIER_FILE, [*COLUMNS, *held])

    @cached_property
    def controls(self) -> pd.DataFrame | None:
        """``controls.csv``; None where there were no controls."""
        if not self.fields.get("controls"):
            return None
        return read_table(self.folder / "controls.csv", list(COLUMNS))

    @cached_property
    def subnets(self) -> list[Subnet]:
        """The frontier's, cheapest first.

        Raises:
            RunError: If a row holds none.
        """
        try:
            return [Subnet.from_json(text) for text in self.frontier["subnet"]]
        except (LdsearchError, TypeError) as error:
            raise RunError(f"{self.folder / FRONTIER_FILE} is damaged: {one_line(error)}") from error

    def points(self) -> list[Choice]:
        """The frontier's sub-networks, cheapest first, each as if it had been taken.

        Raises:
            RunError: If a number is missing.
        """
        choices = []
        try:
            for row, subnet in zip(self.frontier.to_dict("records"), self.subnets, strict=True):
                costs = {name: float(row[name]) for name in self.best.costs if name in row}
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
        except (KeyError, ValueError) as error:
            raise RunError(f"{self.folder / FRONTIER_FILE} is damaged: {one_line(error)}") from error
        return choices


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV file that has these columns and at least one row.

    Raises:
        RunError: If it is missing or has not.
    """
    try:
        table = pd.read_csv(path)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: {one_line(error)}") from error
    if missing := [name for name in columns if name not in table.columns]:
        raise RunError(f"{path} is damaged: it has no column {missing[0]}")
    if table.empty:
        raise RunError(f"{path} is damaged: it has no rows")
    return table


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
