"""Progress of long work: phases of steps, for progress bars; and stops between two steps."""

from ldsearch.interruption import Stop
from ldsearch.trial import Trial


class Progress:
    """Receives the progress of long work; this one ignores every event."""

    def phase(self, name: str, total: int | None) -> None:
        """A phase of that many steps begins; None: their number is not known."""

    def step(self) -> None:
        """A step of the current phase ends."""

    def trial(self, trial: Trial) -> None:
        """A step ends that measured a sub-network, or found its measurement stored."""

    def waiting(self, missing: int) -> None:
        """Another worker measures the last sub-networks of a generation; repeated until they are there."""


NO_PROGRESS = Progress()


class Stoppable(Progress):
    """Passes events on, and raises ``Interrupted`` after a step once a stop was requested.

    Args:
        progress: Receives the events.
        stop: Set by a signal.
    """

    def __init__(self, progress: Progress, stop: Stop) -> None:
        self.progress, self.stop = progress, stop

    def phase(self, name: str, total: int | None) -> None:
        """Pass it on."""
        self.progress.phase(name, total)

    def step(self) -> None:
        """Pass it on, then stop if requested."""
        self.progress.step()
        self.stop.check()

    def trial(self, trial: Trial) -> None:
        """Pass it on, then stop if requested."""
        self.progress.trial(trial)
        self.stop.check()

    def waiting(self, missing: int) -> None:
        """Pass it on, then stop if requested."""
        self.progress.waiting(missing)
        self.stop.check()
