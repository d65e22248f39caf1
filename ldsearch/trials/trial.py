"""Trial: one measured sub-network, one row of every CSV."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import frontier

# Of a sub-network: the most by which it may be worse than the full model, with 95% and on paired examples.
LossBound = Callable[[Subnet], float]


@dataclass(frozen=True)
class Score:
    """A quality measurement and its direction."""

    value: float
    higher_is_better: bool = True

    @property
    def loss(self) -> float:
        """The value as something to minimise."""
        return -self.value if self.higher_is_better else self.value


@dataclass(frozen=True)
class Trial:
    """A sub-network with what was measured of it.

    Args:
        subnet: What was measured.
        metric: Name of the score (``"accuracy"``).
        score: The score on ``examples`` examples of ``split``.
        costs: Cost name to value, in the unit the name states (``macs``: multiply-accumulates per
            example at true lengths; ``padded_macs``: at the reference length; ``parameters``).
        examples: How many examples the score rests on.
        split: Which split they came from.
        seconds: Wall-clock time of the measurement; 0 when it came from the cache.
        fingerprint: What the measurement belongs to: weights, data, semantics.
        generation: The generation that proposed it.
        standard_error: Of the score, from its per-example statistics; NaN where unknown.
    """

    subnet: Subnet
    metric: str
    score: Score
    costs: Mapping[str, float]
    examples: int
    split: str
    seconds: float
    fingerprint: str
    generation: int = field(default=0, compare=False)
    standard_error: float = field(default=math.nan, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "costs", MappingProxyType(dict(self.costs)))


def pareto_front(trials: Sequence[Trial], costs: Sequence[str] = ("macs",)) -> list[Trial]:
    """The non-dominated of the trials in these costs and the score, cheapest first by the first cost."""
    values = [[*(trial.costs[cost] for cost in costs), trial.score.loss] for trial in trials]
    return [trials[i] for i in frontier(values)]


def scored_of(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that have a score."""
    return [trial for trial in trials if not math.isnan(trial.score.value)]
