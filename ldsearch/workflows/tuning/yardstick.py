"""What supernets of one study are compared by: the area of one line of sub-networks, the same for all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ldsearch.bench import Workbench
from ldsearch.errors import RunError
from ldsearch.interruption import interruptible
from ldsearch.intervals import Interval, bootstrap
from ldsearch.reports.held_out import area_terms
from ldsearch.search.constant_ratio import constant_ratio_line
from ldsearch.trial import Trial
from ldsearch.workflows.searching.spaces import search_space


@dataclass(frozen=True)
class Yardstick:
    """How a supernet is measured: all of a study alike, so that their areas can be compared.

    The area is that of the space's regular configurations (of lengths: constant ratio) instead of a
    search's frontier: no search luck is in it, and every training is asked for the same sub-networks.

    Args:
        count: How many sub-networks, spread over the cost range.
        genes: As ``search_space`` takes them; None: what was trained.
        bound: The LengthDrop bound whose space is measured; None: the trained one.
        parity: Whether the space is the reference code's.
    """

    count: int
    genes: str | None
    bound: float | None
    parity: bool

    def line(self, bench: Workbench) -> tuple[str, list[Trial]]:
        """The space's name; its line and the full model, measured on the search rows.

        Raises:
            SpaceError: If the supernet cannot be searched so.
        """
        if self.bound is not None and bench.record.drop_bound is not None:
            bench = replace(bench, record=replace(bench.record, drop_bound=str(self.bound)))
        genes = self.genes or _trained(bench)
        space = search_space(bench, None, genes, self.parity and genes == "lengths")
        line = constant_ratio_line(space, bench.macs, self.count)
        with interruptible() as stop:
            subnets = list(dict.fromkeys([*line, bench.full]))
            return space.name, bench.evaluator(subnets, 0, lambda trial: stop.check())


def _trained(bench: Workbench) -> str:
    if bench.record.drop_bound is not None:
        return "lengths"
    groups = str(bench.record.training.get("drop_groups") or "layer")
    return "+".join({"layer": "depth"}.get(group, group) for group in groups.split("+"))


def area_of(bench: Workbench, trials: Sequence[Trial], held_out: bool = False) -> Interval:
    """Mean score over the cost range, where the search rows' scores choose at each cost; 95% interval.

    Args:
        bench: The supernet.
        trials: Measured on the search rows, the full model among them.
        held_out: Score the choices on the rows that chose nothing, as ``HeldOut.area`` does; otherwise on
            the search rows themselves.

    Raises:
        RunError: If the sub-networks span no range of costs.
    """
    evaluator = bench.held_out if held_out else bench.evaluator
    assert evaluator is not None
    low, high = cost_range(bench, trials)
    terms = area_terms(trials, evaluator.statistics, low, high)
    return bootstrap(terms, bench.task.metric.of_means)


def cost_range(bench: Workbench, trials: Sequence[Trial]) -> tuple[float, float]:
    """MACs of the cheapest trial and of the full model.

    Raises:
        RunError: If they are the same.
    """
    macs = {trial.subnet: trial.costs["macs"] for trial in trials}
    low, high = min(macs.values()), macs[bench.full]
    if not low < high:
        raise RunError("there is nothing cheaper than the full model to measure: choose other --genes")
    return low, high
