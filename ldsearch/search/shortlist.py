"""Search by one score, choose by another: what the first finds is measured by the second."""

from collections.abc import Callable, Sequence

from ldsearch.search.loop import Evaluate, SearchStrategy, search
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial


class Shortlist:
    """Proposes, once, the frontier of a search that has its own score.

    Args:
        strategy: What searches.
        evaluate: Gives its trials.
        full: The full model, which it measures first.
        evaluations: Its most trials; None: all that it asks for.
        patience: Its generations without a gain after which it ends; None: it never ends for that.
        name: For reports.
        wanted: Which of what it asks for may be chosen.
        costs: Names of the costs that it minimises.
    """

    def __init__(
        self,
        strategy: SearchStrategy,
        evaluate: Evaluate,
        full: Subnet,
        evaluations: int | None,
        patience: int | None,
        name: str,
        wanted: Callable[[Subnet], bool] = lambda subnet: True,
        costs: Sequence[str] = ("macs",),
    ) -> None:
        self.strategy = strategy
        self.evaluate = evaluate
        self.full = full
        self.evaluations = evaluations
        self.patience = patience
        self.name = name
        self.wanted = wanted
        self.costs = costs

    def propose(self, generation: int, ledger: Sequence[Trial]) -> list[Subnet]:
        """The frontier in generation 0, cheapest first, then nothing."""
        if generation > 0:
            return []
        found = search(
            self.strategy,
            self.evaluate,
            self.full,
            evaluations=self.evaluations,
            patience=self.patience,
            wanted=self.wanted,
            costs=self.costs,
        )
        return [trial.subnet for trial in found.frontier if trial.subnet in found.proposed]
