"""Who is told what a run does, and how its evaluations are told and stopped."""

from collections.abc import Sequence
from typing import Protocol

from ldsearch.evaluation import Evaluator
from ldsearch.interruption import Stop
from ldsearch.search.loop import Evaluate
from ldsearch.subnet import Subnet
from ldsearch.trial import Trial


class Watcher(Protocol):
    """Is told what a run does (progress bars)."""

    def phase(self, name: str, total: int | None) -> None:
        """A new part of the work starts; ``total`` measurements at most, if that is known."""

    def trial(self, trial: Trial) -> None:
        """A sub-network was measured, or its measurement was known."""

    def step(self) -> None:
        """One timed call more."""

    def waiting(self, missing: int) -> None:
        """Another worker measures the last ones of a generation; said again until they are there."""


class Unwatched:
    """Nobody looks."""

    def phase(self, name: str, total: int | None) -> None:
        """Say nothing."""

    def trial(self, trial: Trial) -> None:
        """Say nothing."""

    def step(self) -> None:
        """Say nothing."""

    def waiting(self, missing: int) -> None:
        """Say nothing."""


def watched(evaluator: Evaluator, watcher: Watcher, stop: Stop) -> Evaluate:
    """An evaluator that tells the watcher of every trial and of waiting, and stops in between when asked."""

    def on_trial(trial: Trial) -> None:
        watcher.trial(trial)
        stop.check()

    def on_wait(missing: int) -> None:
        watcher.waiting(missing)
        stop.check()

    def evaluate(subnets: Sequence[Subnet], generation: int) -> list[Trial]:
        return evaluator(subnets, generation, on_trial, on_wait)

    return evaluate
