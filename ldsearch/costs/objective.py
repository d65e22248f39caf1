"""What a search minimises, as users write it: score, kl, latency@batch=8,length=128, kl+parameters."""

from dataclasses import dataclass
from typing import Any

from ldsearch.costs.budget import Budget, batch_and_length
from ldsearch.costs.named import COSTS
from ldsearch.errors import RunError, unknown

SCORES = ("score", "kl")
_COSTS = ("macs", "parameters", "latency")
_NEEDS = "the objective latency needs its batch and length: latency@batch=8,length=128"


@dataclass(frozen=True)
class Objective:
    """The score that sub-networks are searched by, and the costs that are minimised beside it.

    Args:
        score: ``"score"``: the task's; ``"kl"``: the divergence from the full model's outputs.
        costs: Names of costs; figures and areas go along the first.
        cell: Batch and length of the latency that is predicted; None where none is asked for.
    """

    score: str = "score"
    costs: tuple[str, ...] = ("macs",)
    cell: tuple[int, int] | None = None

    @classmethod
    def parse(cls, text: str, budget: Budget | None = None) -> "Objective":
        """Read an objective: one score, one cost or several, joined by ``+``.

        Args:
            text: What it does not say is ``score``, and the cost that the budget limits if that is a latency,
                else ``macs``.
            budget: That a sub-network is to meet; a latency takes batch and length from it.

        Raises:
            RunError: If it names what nothing is searched by, two scores, or a latency without its workload.
        """
        limited = budget is not None and budget.cost == "latency"
        cells = [(budget.batch, budget.length)] if budget is not None and limited else []
        scores, costs = [], []
        for term in text.split("+"):
            name, at, workload = term.strip().partition("@")
            if at and name != "latency":
                raise RunError(f"cannot read the objective {text!r}: only a latency has batch and length")
            if at:
                found = batch_and_length(at + workload)
                if found is None:
                    raise RunError(_NEEDS)
                cells.append(found)
            if name in SCORES:
                scores.append(name)
            elif name in _COSTS or name in COSTS:
                costs.append(name)
            else:
                known = unknown("objective", name, [*SCORES, *_COSTS, *COSTS])
                raise RunError(f"{known}, or several joined by +")
        if len(scores) > 1 or len(set(costs)) < len(costs):
            raise RunError(f"the objective {text!r} names one thing twice: one score, and each cost once")
        if len(set(cells)) > 1:
            raise RunError(f"the objective {text!r} and the budget ask for latencies of other batches")
        if "latency" in costs and not cells:
            raise RunError(_NEEDS)
        usual = "latency" if limited else "macs"
        return cls((scores or ["score"])[0], tuple(costs or [usual]), next(iter(cells), None))

    @property
    def words(self) -> list[str]:
        """What is not usual about it, for names of runs."""
        return [
            *([self.score] if self.score != "score" else []),
            *(self.costs if self.costs != ("macs",) else []),
        ]

    @property
    def identity(self) -> dict[str, Any]:
        """What makes two searches the same search; empty for MACs."""
        if self.costs == ("macs",):
            return {}
        return {"costs": list(self.costs), "cell": None if self.cell is None else list(self.cell)}
