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
