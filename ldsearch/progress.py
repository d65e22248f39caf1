"""Progress of long work: phases of steps, for progress bars; and stops between two steps."""

from dataclasses import dataclass
from typing import Protocol

from ldsearch.interruption import Stop
from ldsearch.trial import Trial


class Progress(Protocol):
    """Receives the progress of long work."""

    def phase(self, name: str, total: int | None) -> None:
        """A phase of that many steps begins; None: their number is not known."""

    def step(self) -> None:
        """A step of the current phase ends."""

    def trial(self, trial: Trial) -> None:
        """A step ends that measured a sub-network, or found its measurement stored."""

    def waiting(self, missing: int) -> None:
        """Another worker measures the last sub-networks of a generation; repeated until they are there."""


class NoProgress:
    """Progress reporter that ignores every event."""

    def phase(self, name: str, total: int | None) -> None:
        """Ignore it."""

    def step(self) -> None:
        """Ignore it."""

    def trial(self, trial: Trial) -> None:
        """Ignore it."""

    def waiting(self, missing: int) -> None:
        """Ignore it."""


NO_PROGRESS: Progress = NoProgress()


@dataclass(frozen=True)
class Stoppable:
    """Progress that raises ``Interrupted`` after a step once a stop was asked for.

    Args:
        progress: Receives the events.
        stop: Set by a signal.
    """

    progress: Progress
    stop: Stop

    def phase(self, name: str, total: int | None) -> None:
        """Pass it on."""
        self.progress.phase(name, total)

    def step(self) -> None:
        """Pass it on, then stop if asked to."""
        self.progress.step()
        self.stop.check()

    def trial(self, trial: Trial) -> None:
        """Pass it on, then stop if asked to."""
        self.progress.trial(trial)
        self.stop.check()

    def waiting(self, missing: int) -> None:
        """Pass it on, then stop if asked to."""
        self.progress.waiting(missing)
        self.stop.check()
