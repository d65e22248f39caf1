"""One graph for every budget: lengths are fed, and a file beside the graph says which are worth feeding."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ldsearch.disk.files import read_fields
from ldsearch.errors import BudgetError, SupernetError
from ldsearch.export.names import BUDGETS_FILE
from ldsearch.subnet import Subnet, drop_places, keep_of
from ldsearch.trials.budget import Budget, TimeBudget


def rows_beside(chosen: Subnet, others: Sequence[Subnet]) -> list[int]:
    """Positions of those that differ from the chosen one in lengths alone: one elastic graph runs them."""
    return [place for place, other in enumerate(others) if _without(other) == _without(chosen)]


def budgets(
    reference: int, entries: Sequence[Mapping[str, Any]], subnets: Sequence[Subnet]
) -> dict[str, Any]:
    """The object in ``budgets.json``: each row's fields and the lengths fed for it, cheapest first."""
    places = drop_places(subnets)
    pairs = zip(entries, subnets, strict=True)
    rows = [{**entry, "keep": keep_of(subnet, reference, places)} for entry, subnet in pairs]
    return {"reference": reference, "rows": sorted(rows, key=lambda row: float(row["costs"]["macs"]))}


def keep_within(folder: Path, budget: str | float) -> tuple[int, ...]:
    """The best row of an elastic export within a budget: of a frontier the dearest.

    Args:
        folder: What ``ldsearch export --elastic`` wrote.
        budget: As ``Budget.parse`` reads it; a latency of a batch and a length that the export measured, of
            ``2x`` that of the largest batch.

    Raises:
        BudgetError: If no row is within it, or the latency was not measured.
        SupernetError: If the folder is no elastic export.
    """
    path = folder / BUDGETS_FILE
    if not path.is_file():
        raise SupernetError(f"{folder} has no {BUDGETS_FILE}: only an export with --elastic has budgets")
    rows = read_fields(path, SupernetError)["rows"]
    timed = [(line["batch"], line["length"]) for line in rows[0]["latency"]]
    limit = Budget.parse(str(budget), max(timed, default=None))
    costs = [_cost(row, limit, path) for row in rows]
    # Sums of floating-point numbers: the full row is within a share of 1.
    within = [(row["costs"]["macs"], row) for row, cost in zip(rows, costs, strict=True) if cost <= 1 + 1e-6]
    if not within:
        raise BudgetError(
            f"no row of {path} is within {budget}: the cheapest takes {min(costs):.2f} times that"
        )
    return tuple(max(within, key=lambda one: one[0])[1]["keep"])


def _cost(row: dict[str, Any], limit: Budget, path: Path) -> float:
    """A row's cost as a share of the limit."""
    if not isinstance(limit, TimeBudget):
        cost, full = row["costs"][limit.cost], row["full_costs"]
        # Tables show a share with two digits, and so much is enough to name its row.
        shown = round(cost / full[limit.cost], 2) * full[limit.cost]
        return float((min(cost, shown) if limit.is_share else cost) / limit.absolute(full))
    for line in row["latency"]:
        if (line["batch"], line["length"]) == limit.cell:
            return float(line["median_ms"] / limit.absolute({"latency": line["full_ms"]}))
    measured = ", ".join(f"batch={line['batch']},length={line['length']}" for line in row["latency"])
    raise BudgetError(f"{path} has no latency at {limit.source.partition('@')[2]}: it has {measured}")


def _without(subnet: Subnet) -> object:
    stack = subnet.encoder
    return subnet if stack is None else {**vars(stack), "lengths": None}
