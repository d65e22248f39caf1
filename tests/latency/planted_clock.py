"""A clock that moves only when told to, and work that takes as long as it says."""

from collections.abc import Callable, Iterable


class PlantedClock:
    """Call it for the time; ``work`` makes callables that let it pass."""

    def __init__(self) -> None:
        self.time = 100.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.time

    def work(self, name: str, seconds: Iterable[float]) -> Callable[[], None]:
        """A callable that takes the next of these each time."""
        left = iter(seconds)

        def run() -> None:
            self.calls.append(name)
            self.time += next(left)

        return run


class Counted:
    """Progress that counts, and interrupts what it is told of at a step."""

    def __init__(self, last: int | None = None) -> None:
        self.phases: list[tuple[str, int]] = []
        self.steps = 0
        self.last = last

    def phase(self, name: str, total: int) -> None:
        self.phases.append((name, total))

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.last:
            raise KeyboardInterrupt
