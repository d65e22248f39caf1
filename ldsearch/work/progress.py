"""Progress of long work: phases of steps, for progress bars and for lines; and stops between two steps."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from ldsearch.trials.trial import Trial
from ldsearch.work.interruption import Stop

# Of the trials so far, the full model's first: what would be taken now; None: nothing yet.
Best = Callable[[Sequence[Trial]], Trial | None]


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


class Counted(Progress):
    """Counts the steps of a phase, and knows the best trial so far.

    Args:
        best: Says which; None: what is shown is the last trial.
        clock: In seconds.
    """

    def __init__(self, best: Best | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.best, self.clock = best, clock
        self.name, self.done, self.begun, self.state, self.split = "", 0, clock(), "", ""
        self.stepped, self.found = self.begun, 0
        self.total: int | None = None
        self.trials: list[Trial] = []

    def phase(self, name: str, total: int | None) -> None:
        """Start counting again."""
        self.name, self.total, self.done, self.begun, self.found = name, total, 0, self.clock(), 0
        self.trials, self.state = [], ""
        self.changed()

    def step(self) -> None:
        """One step further."""
        self.done, self.stepped = self.done + 1, self.clock()
        self.changed()

    def trial(self, trial: Trial) -> None:
        """One step further, and perhaps a better one."""
        self.stepped = self.clock()
        # A search that goes on finds what it measured before, which tells nothing of the pace.
        if not trial.seconds and self.found == self.done:
            self.found, self.begun = self.found + 1, self.stepped
        self.done += 1
        self.trials.append(trial)
        self.split = self.split or trial.split
        if self.best is not None:
            # Rows that come later choose nothing.
            taken = self.best(self.trials) if trial.split == self.split else None
            self.state = "" if taken is None else f"best {self._in_words(taken)}"
        else:
            self.state = f"{trial.metric} {trial.score.value:.4f}"
        self.changed()

    def waiting(self, missing: int) -> None:
        """Say why nothing moves."""
        self.state = "waiting for another worker"
        self.changed()

    def changed(self) -> None:
        """Something above has; shows it."""

    @property
    def seconds_left(self) -> float:
        """Seconds left of the phase at its pace until the last step; NaN: not known yet."""
        if self.total is None or self.done == self.found:
            return math.nan
        # Steps come together: until the next ones do, no time that passes says that each takes longer.
        return (self.stepped - self.begun) / (self.done - self.found) * max(0, self.total - self.done)

    def _in_words(self, trial: Trial) -> str:
        share = trial.costs["macs"] / self.trials[0].costs["macs"]
        return f"{trial.score.value:.4f} at {share:.3f}"


class Lines(Counted):
    """A line a minute, where there is no terminal: phase, count, time left, best so far.

    Where nothing happens for longer, ``ticking`` says so.

    Args:
        write: Receives each line.
        best: See ``Counted``.
        clock: In seconds.
    """

    EVERY = 60.0  # seconds

    def __init__(
        self,
        write: Callable[[str], None],
        best: Best | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(best, clock)
        self.write, self.last = write, clock()

    def changed(self) -> None:
        """Write, if the last line is a minute old."""
        now = self.clock()
        if now - self.last < self.EVERY:
            return
        self.last = now
        count = f"{self.done}" if self.total is None else f"{self.done} of {self.total}"
        left = self.seconds_left
        # A phase whose steps are not counted has none to tell.
        told = self.total is not None or self.done
        parts = [f"{self.name or 'working'}: {count}" if told else self.name or "working"]
        parts += [] if math.isnan(left) else [f"about {in_minutes(left)} left"]
        self.write(", ".join([*parts, *([self.state] if self.state else [])]))

    @contextlib.contextmanager
    def ticking(self) -> Iterator["Lines"]:
        """Lines also while a step takes minutes, as long as the block runs."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(min(1.0, self.EVERY)):
                self.changed()

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield self
        finally:
            ended.set()
            ticker.join()


def in_minutes(seconds: float) -> str:
    """``"40 s"``, ``"4 min"``, ``"2 h 5 min"``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


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
