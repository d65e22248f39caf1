"""Latency in a search: predicted from a device's table while searching, measured before it is reported."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from ldsearch.costs.budget import Budget
from ldsearch.errors import BudgetError, RunError
from ldsearch.latency.clock import Clock, Noise
from ldsearch.latency.device import device_facts, synchroniser
from ldsearch.latency.inputs import random_cell
from ldsearch.latency.measuring import Line, entries_of, measure
from ldsearch.latency.probes import FORWARD
from ldsearch.latency.stages import SupernetStages
from ldsearch.latency.table import Latency, LatencyTable
from ldsearch.selector import Selector, WithinBudget
from ldsearch.trial import Trial
from ldsearch.workflows.workbench import Workbench

TRIES = 5  # choices that are measured before the budget is given up
REPEATS = 7
_RUNTIME = "eager"


def table_of(bench: Workbench) -> Path:
    """Where a supernet's latency table lies, unless it is said."""
    return bench.folder.parent / f"{bench.folder.name}-latency.csv"


def know_latency(bench: Workbench, selector: Selector, table: Path | None = None) -> None:
    """Where a latency is asked for, let the bench's trials carry a predicted one beside their other costs.

    Args:
        bench: The supernet.
        selector: Its budget names batch and length.
        table: Of ``ldsearch profile --table``; None: ``table_of``.

    Raises:
        RunError: If there is no table, or it is another model's.
        LdsearchError: If it does not know batch or length.
    """
    if not _asks(selector):
        return
    budget, path = selector.budget, table or table_of(bench)
    if not path.is_file():
        raise RunError(
            f"a latency budget needs this device's latency table: ldsearch profile {bench.folder} --table "
            f"{path} --batch {budget.batch} --length {budget.length}"
        )
    found = LatencyTable.load(path)
    found.require({"model": SupernetStages(bench.supernet).facts["model"]})
    latency = Latency(found, budget.batch, budget.length)
    latency([bench.full])  # refuses before anything runs
    others = [cost for cost in bench.evaluator.costs if cost.name != latency.name]
    bench.evaluator.costs = [*others, latency]


@dataclass(frozen=True)
class Confirmed:
    """A choice whose latency was measured.

    Args:
        trial: The choice.
        line: Its latency.
        full: The full model's, the faster of its own path and stock sdpa, in milliseconds.
        noise: Of the clock.
        tries: Choices that were measured; those before this one were slower than the budget.
        facts: Of the device.
    """

    trial: Trial
    line: Line
    full: float
    noise: Noise
    tries: int
    facts: dict[str, Any]

    @property
    def measured(self) -> float:
        """Median milliseconds."""
        return 1e3 * self.line.timing.median

    def to_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "predicted_ms": self.trial.costs["latency"],
            "measured_ms": self.measured,
            "full_ms": self.full,
            "ratio": self.line.ratio,
            "macs_ratio": self.line.macs_ratio,
            "not_faster": self.line.not_faster,
            "tries": self.tries,
            "timing": asdict(self.line.timing),
            "noise": asdict(self.noise),
            **self.facts,
        }

    def describe(self) -> str:
        """In words."""
        predicted = self.trial.costs["latency"]
        slow = "; not faster than the full model, though its MACs are fewer" if self.line.not_faster else ""
        return (
            f"latency: {self.measured:.2f} ms measured, {predicted:.2f} ms predicted "
            f"({predicted / self.measured - 1:+.0%}); {self.line.ratio:.3f} of the full model's "
            f"{self.full:.2f} ms{slow} ({self.facts['threads']} threads, {self.noise.describe()})"
        )


def confirmed(
    bench: Workbench, candidates: Sequence[Trial], full: Trial, selector: Selector
) -> Confirmed | None:
    """The best candidate whose measured latency meets the budget; predictions only say in which order.

    None where no latency is asked for.

    Raises:
        BudgetError: If none meets it as predicted, or the ``TRIES`` best of those turned out slower.
    """
    if not _asks(selector):
        return None
    budget, left = selector.budget, list(candidates)
    slower: list[str] = []
    for tries in range(1, TRIES + 1):
        try:
            trial = selector.choose(left, full)
        except BudgetError:
            if not slower:
                raise
            break
        own = _measured(bench, trial, budget)
        if own.measured <= budget.limit:
            return replace(own, tries=tries)
        slower.append(f"{own.measured:.2f} (predicted {trial.costs['latency']:.2f})")
        left.remove(trial)
    raise BudgetError(
        f"what the table predicts to meet {budget.text} took {', '.join(slower)} ms: measure the table again "
        "on this device, quiet, or ask for more"
    )


def _measured(bench: Workbench, trial: Trial, budget: Budget) -> Confirmed:
    supernet = bench.supernet.eval()
    device = supernet.model.device
    clock = Clock(REPEATS, synchronise=synchroniser(device))
    cell = random_cell(supernet, budget.batch, budget.length)
    lines, noise = measure(supernet, entries_of(supernet, [trial.subnet], _RUNTIME), cell, FORWARD, clock)
    own = lines[-1]
    full = 1e3 * own.timing.median / own.ratio
    return Confirmed(trial, own, full, noise, 1, device_facts(device, supernet.model.dtype))


def _asks(selector: Selector) -> TypeGuard[WithinBudget]:
    return isinstance(selector, WithinBudget) and selector.budget.cost == "latency"
