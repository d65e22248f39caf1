"""What finished searches left in their folders, read for reports."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.costs.budget import Budget
from ldsearch.errors import RunError, one_line
from ldsearch.reports.held_out import HELD_OUT_COLUMNS
from ldsearch.reports.tables import COLUMNS
from ldsearch.runs import BEST_FILE, HEALTH_FILE, RUN_FILE, SUPERNET_FILE, beside, read_json
from ldsearch.search.loop import CostFunction, SearchResult
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import SupernetRecord, read_record
from ldsearch.trial import Score, Trial


@dataclass(frozen=True)
class FinishedRun:
    """A finished search, as its folder has it.

    Args:
        folder: The run's.
        fields: Its ``run.json``.
        best: Its ``best.json``.
        trials: Its ``trials.csv``; the first row is the full model.
        front: Its ``frontier.csv``, cheapest first.
        controls: Its ``controls.csv``; None where there were no controls.
        record: The supernet's; None where the supernet is not where the run saw it.
    """

    folder: Path
    fields: Mapping[str, Any]
    best: Mapping[str, Any]
    trials: pd.DataFrame
    front: pd.DataFrame
    controls: pd.DataFrame | None
    record: SupernetRecord | None

    @classmethod
    def read(cls, folder: Path) -> "FinishedRun":
        """From a run's folder.

        Raises:
            RunError: If it holds no finished search, or is damaged.
        """
        if (folder / SUPERNET_FILE).is_file():
            raise RunError(f"{folder} is a model, not a search run: name a run that searched it")
        if not (folder / RUN_FILE).is_file():
            raise RunError(f"{folder} is not a search run: it has no {RUN_FILE}")
        fields = read_json(folder / RUN_FILE)
        identity = fields.get("identity")
        if not isinstance(identity, dict):
            raise RunError(f"{folder / RUN_FILE} is damaged: it holds no identity")
        if (folder / HEALTH_FILE).is_file() or identity.get("strategy") == "health":
            raise RunError(f"{folder} is a health run: name a search run beside it, whose report shows it")
        if "trials" not in fields or not (folder / BEST_FILE).is_file():
            raise RunError(f"{folder} is an unfinished run: run the same command again to go on")
        controls = folder / "controls.csv"
        home = beside(folder, str(fields.get("supernet")))
        return cls(
            folder,
            fields,
            read_json(folder / BEST_FILE),
            _table(folder / "trials.csv"),
            _table(folder / "frontier.csv"),
            _table(controls) if fields.get("controls") else None,
            read_record(home) if (home / SUPERNET_FILE).is_file() else None,
        )

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def supernet(self) -> Path:
        """Where the supernet lay."""
        return beside(self.folder, str(self.fields["supernet"]))

    @property
    def measurements(self) -> Path:
        """Where its measurements are kept."""
        return beside(self.folder, str(self.fields["measurements"]))

    @property
    def seeded(self) -> bool:
        """Whether it is a search that draws; a rule lists what it measures."""
        return "seed" in self.fields["identity"]

    @cached_property
    def subnets(self) -> list[Subnet]:
        """The frontier's, cheapest first."""
        return [Subnet.from_json(text) for text in self.front["subnet"]]

    @property
    def chosen(self) -> Subnet:
        """What the selector took."""
        return Subnet.from_json(json.dumps(self.best["subnet"]))

    @property
    def budget_share(self) -> float | None:
        """The budget as a share of the full model's cost; None where another cost was minimised."""
        kind, _, text = str(self.fields["selector"]).partition(" ")
        budget = Budget.parse(text) if kind == "budget" else None
        if budget is None or budget.cost != self.costs[0]:
            return None
        full = self.best["full_costs"]
        return float(budget.absolute(full) / full[budget.cost])

    @property
    def costs(self) -> tuple[str, ...]:
        """Names of those that were minimised; the reports go along the first."""
        return tuple(self.fields.get("costs") or ["macs"])

    @property
    def depths(self) -> dict[str, int]:
        """Blocks of each stack of the full model."""
        full = Subnet.from_json(str(self.trials["subnet"].iloc[0]))
        return {name: len(stack.blocks) for name, stack in full.stacks().items()}


def result_of(table: pd.DataFrame, macs: CostFunction, higher_is_better: bool) -> SearchResult:
    """What a table of trials says was measured; all of it may be chosen.

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


@dataclass(frozen=True)
class HealthRun:
    """A health run of the same supernet on the same rows.

    Args:
        folder: Its own.
        fields: Its ``health.json``.
        table: Its ``health.csv``.
    """

    folder: Path
    fields: Mapping[str, Any]
    table: pd.DataFrame


def health_beside(run: FinishedRun) -> HealthRun | None:
    """The newest health run in the same runs folder with the run's fingerprint; None where there is none.

    Raises:
        RunError: If it is damaged.
    """
    wanted = run.fields["identity"]["fingerprint"]
    folders = [path.parent for path in run.folder.resolve().parent.glob(f"*/{HEALTH_FILE}")]
    own = [
        folder
        for folder in folders
        if (folder / RUN_FILE).is_file()
        and (read_json(folder / RUN_FILE).get("identity") or {}).get("fingerprint") == wanted
    ]
    if not own:
        return None
    newest = max(own, key=lambda folder: (folder / HEALTH_FILE).stat().st_mtime)
    table = read_table(newest / "health.csv", ("macs_share", "inherited", "fine_tuned", "subnet"))
    return HealthRun(newest, read_json(newest / HEALTH_FILE), table)


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


def _table(path: Path) -> pd.DataFrame:
    table = read_table(path, list(COLUMNS))
    if "held_out_score" in table.columns:
        return read_table(path, [*COLUMNS, *HELD_OUT_COLUMNS])
    return table
