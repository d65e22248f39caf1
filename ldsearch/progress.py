"""Progress of long work: phases of a known number of steps."""

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of long work, for progress bars."""

    def phase(self, name: str, total: int) -> None:
        """A phase of that many steps begins."""

    def step(self) -> None:
        """A step of the current phase ends."""


class NoProgress:
    """Progress reporter that ignores every event."""

    def phase(self, name: str, total: int) -> None:
        """Ignore it."""

    def step(self) -> None:
        """Ignore it."""


NO_PROGRESS: Progress = NoProgress()
