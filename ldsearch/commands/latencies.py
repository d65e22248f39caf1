"""Latency in a search: predicted from a device's table while searching, measured before it is reported."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ldsearch.bench import Bench
from ldsearch.errors import BudgetError, RunError
from ldsearch.goal import Goal
from ldsearch.latency.clock import Clock, Noise, device_facts, synchroniser
from ldsearch.latency.measure import FORWARD, Cell, Line, entries_of, measure, random_cell
from ldsearch.latency.table import Latency, LatencyTable, SupernetStages, table_beside
from ldsearch.progress import Progress
from ldsearch.reports.latency import Accuracy
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial

REPEATS = 5
_RUNTIME = "eager"


def know_latency(bench: Bench, cell: tuple[int, int] | None, table: Path | None = None) -> None:
    """Where a latency is asked for, let the bench's trials carry a predicted one beside their other costs.

    Args:
        bench: The supernet.
        cell: Batch and length; None: no latency is asked for.
        table: Of ``ldsearch profile --table``; None: the one beside the supernet.

    Raises:
        RunError: If there is no table, or it is another model's.
        LdsearchError: If it does not know batch or length.
    """
    if cell is None:
        return
    batch, length = cell
    path = table or table_beside(bench.folder)
    if not path.is_file():
        raise RunError(
            f"a latency needs this device's latency table: ldsearch profile {bench.folder} --table "
            f"{path} --batch {batch} --length {length}"
        )
    found = LatencyTable.load(path)
    found.require({"model": SupernetStages(bench.supernet).facts["model"]})
    latency = Latency(found, batch, length)
    latency([bench.full])  # refuses before anything runs
    others = [cost for cost in bench.evaluator.costs if cost.name != latency.name]
    bench.evaluator.costs = [*others, latency]


@dataclass(frozen=True)
class Latencies:
    """Measured latencies of the sub-networks of a search.

    Args:
        cell: The inputs.
        lines: By sub-network; the full model's is that of the runtime it was compared in.
        predicted: Milliseconds that the table said, by sub-network.
        full: The full model's, the faster of its own path and stock sdpa, in milliseconds.
        noise: Of the clock.
        facts: Of the device.
    """

    cell: Cell
    lines: Mapping[Subnet, Line]
    predicted: Mapping[Subnet, float]
    full: float
    noise: Noise
    facts: Mapping[str, Any]

    def measured(self, subnet: Subnet) -> float:
        """Median milliseconds of a batch."""
        return 1e3 * self.lines[subnet].timing.median

    @property
    def accuracy(self) -> Accuracy:
        """Accuracy of the predicted latencies."""
        return Accuracy.of([self.predicted[one] for one in self.lines], list(map(self.measured, self.lines)))

    def to_dict(self, best: Subnet) -> dict[str, Any]:
        """For run.json, of the choice and of all."""
        line, accuracy = self.lines[best], self.accuracy
        return {
            "predicted_ms": self.predicted[best],
            "measured_ms": self.measured(best),
            "full_ms": self.full,
            "ratio": line.ratio,
            "macs_ratio": line.macs_ratio,
            "not_faster": line.not_faster,
            "timing": asdict(line.timing),
            "batch": self.cell.batch,
            "length": self.cell.length,
            "points": accuracy.points,
            "mean_error": accuracy.mean_error,
            "bias": accuracy.bias,
            "rank_correlation": accuracy.ranks,
            "points_not_faster": sum(own.not_faster for own in self.lines.values()),
            "noise": {**asdict(self.noise), "noisy": self.noise.noisy},
            **self.facts,
        }

    def describe(self, best: Subnet) -> list[str]:
        """Describe the choice's latency and the error of the predictions."""
        line, predicted, measured = self.lines[best], self.predicted[best], self.measured(best)
        slow = "; not faster than the full model, though its MACs are fewer" if line.not_faster else ""
        said = [
            f"latency: {measured:.2f} ms measured, {predicted:.2f} ms predicted "
            f"({predicted / measured - 1:+.0%}); {line.ratio:.3f} of the full model's "
            f"{self.full:.2f} ms{slow} ({self.facts['threads']} threads, {self.noise.describe()})"
        ]
        said.append(self.accuracy.describe())
        slow_ones = sum(own.not_faster for own in self.lines.values())
        if slow_ones:
            said.append(f"{slow_ones} of them have fewer MACs than the full model and are not faster")
        return said


def measured_latencies(
    bench: Bench,
    cell: tuple[int, int] | None,
    trials: Sequence[Trial],
    progress: Progress,
) -> Latencies | None:
    """Time what a search found, all in turn; None where no latency is asked for.

    Args:
        bench: The supernet.
        cell: Batch and length; None: no latency is asked for.
        trials: What it found, with predicted latencies; the full model's among them or not.
        progress: A phase "latency" with a step after every timed call.
    """
    if cell is None:
        return None
    supernet = bench.supernet.eval()
    device = supernet.model.device
    clock = Clock(REPEATS, 1, synchronise=synchroniser(device))
    inputs = random_cell(supernet, *cell)
    entries = entries_of(supernet, list(dict.fromkeys(trial.subnet for trial in trials)), _RUNTIME)
    progress.phase("latency", clock.calls(len(entries)))
    lines, noise = measure(supernet, entries, inputs, FORWARD, clock, progress)
    own = {line.entry.subnet: line for line in lines if line.entry.runtime == _RUNTIME}
    full = 1e3 * lines[0].timing.median / lines[0].ratio
    predicted = dict(zip(own, bench.cost("latency")(list(own)).tolist(), strict=True))
    return Latencies(inputs, own, predicted, full, noise, device_facts(device, supernet.model.dtype))


def choose(candidates: Sequence[Trial], full: Trial, goal: Goal, latencies: Latencies | None) -> Trial:
    """The trial that the goal takes; where latencies were measured, by those.

    Raises:
        BudgetError: If none will do.
    """
    if latencies is None:
        return goal.take.choose(candidates, full)
    timed = {trial.subnet: trial for trial in candidates if trial.subnet in latencies.lines}

    def as_measured(trial: Trial) -> Trial:
        return replace(trial, costs={**trial.costs, "latency": latencies.measured(trial.subnet)})

    try:
        found = goal.take.choose([as_measured(trial) for trial in timed.values()], as_measured(full))
    except BudgetError as error:
        raise BudgetError(
            f"measured on this device, {error}: measure the table again, quiet, or ask for more"
        ) from error
    return timed[found.subnet]
