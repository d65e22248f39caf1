"""The timing protocol: callables in turn, round after round, on a device whose facts and noise are known."""

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError
from ldsearch.supernet.processor import processor_flags
from ldsearch.work.progress import NO_PROGRESS, Progress

Run = Callable[[], object]

# A steady machine times a thing against itself within 5% (of medians), its middle half within 20%.
MOST_DRIFT = 0.05
MOST_SPREAD = 0.20
MOST_REPEATS = 100  # where a time asks for more than the fewest
SECONDS = 3.0  # of whole models at one batch and length
# Seconds: the caches' share of a longer call is small (refilling tens of megabytes takes milliseconds).
LEAD = 0.2


@dataclass(frozen=True)
class Timing:
    """Quartiles of a repeated timing.

    Args:
        median: Of the repeats.
        low: First quartile.
        high: Third quartile.
        p95: 95th percentile, interpolated: of few repeats not far from the slowest.
        repeats: How many.
    """

    median: float
    low: float
    high: float
    p95: float
    repeats: int

    @classmethod
    def of(cls, samples: NDArray[np.float64]) -> "Timing":
        """From samples of shape (repeats,), in any unit."""
        low, median, high, p95 = np.percentile(samples, [25, 50, 75, 95]).tolist()
        return cls(median, low, high, p95, len(samples))


@dataclass(frozen=True)
class Noise:
    """Noise of a timing.

    Args:
        drift: The first callable timed against itself in the same rounds: its medians' ratio less 1.
        spread: The widest inter-quartile range of a callable, relative to its median.
    """

    drift: float
    spread: float

    @property
    def noisy(self) -> bool:
        """Whether either passes its bound."""
        return abs(self.drift) > MOST_DRIFT or self.spread > MOST_SPREAD

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "noisy": self.noisy}

    def describe(self) -> str:
        """Describe the noise and its bounds."""
        return (
            f"{'noisy' if self.noisy else 'steady'} machine: the same model timed twice differs by "
            f"{abs(self.drift):.1%} (bound {MOST_DRIFT:.0%}), the widest inter-quartile range is "
            f"{self.spread:.0%} of its median (bound {MOST_SPREAD:.0%})"
        )


@dataclass(frozen=True)
class Rounds:
    """Readings of the clock.

    Args:
        seconds: Shape (callables, repeats).
        again: The first callable's second time in each round, shape (repeats,).
    """

    seconds: NDArray[np.float64]
    again: NDArray[np.float64]

    @property
    def timings(self) -> tuple[Timing, ...]:
        """One per callable, in their order."""
        return tuple(map(Timing.of, self.seconds))

    @property
    def noise(self) -> Noise:
        """Noise of these rounds."""
        drift = float(np.median(self.again) / np.median(self.seconds[0])) - 1
        return Noise(drift, max((each.high - each.low) / each.median for each in self.timings))


@dataclass(frozen=True)
class Clock:
    """Times callables in turn, so that what disturbs the machine disturbs all of them.

    Every round is in an order of its own, drawn from a fixed seed. What ran before leaves its data in the
    caches, and no order is fair to a short call: after a call of itself it finds its own weights there, after
    a larger model none. So a short one is timed after an untimed call of itself, as in a server.

    Args:
        repeats: Rounds that count, the fewest where ``seconds`` asks for more.
        warmup: Rounds before them, which do not.
        now: Gives seconds.
        synchronise: Waits for what a call left running on an accelerator.
        seconds: Short calls are noisy and cheap: rounds go on until so much was measured, up to
            ``MOST_REPEATS``.
        lead: What took less seconds the last time is called once untimed before it is timed. 0: nothing is,
            for parts that never follow themselves.

    Raises:
        LdsearchError: If there is nothing to repeat.
    """

    repeats: int = 5
    warmup: int = 2
    now: Callable[[], float] = time.perf_counter
    synchronise: Callable[[], None] = lambda: None
    seconds: float = 0.0
    lead: float = LEAD

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.warmup < 0:
            raise LdsearchError(f"a timing needs 1 repeat or more, not {self.repeats}")

    def __call__(self, runs: Sequence[Run], progress: Progress = NO_PROGRESS) -> Rounds:
        """Time each of them ``repeats`` times.

        Args:
            runs: At least one; the first is timed twice a round.
            progress: A step after every call of ``calls``, outside of what is timed.
        """
        entries = [*runs, runs[0]]
        counted: list[NDArray[np.float64]] = []
        turn, measured = -self.warmup, 0.0
        order, took = np.random.default_rng(0), np.full(len(entries), np.inf)
        while turn < self.repeats or (turn < MOST_REPEATS and measured < self.seconds):
            before, took = took, np.zeros(len(entries))
            for entry in order.permutation(len(entries)).tolist():
                if before[entry] < self.lead:
                    entries[entry]()
                took[entry] = self._once(entries[entry])
                if turn < self.repeats:
                    progress.step()
            if turn >= 0:
                counted.append(took)
                measured += float(took.sum())
            turn += 1
        seconds = np.stack(counted, axis=1)
        return Rounds(seconds[:-1], seconds[-1])

    def calls(self, runs: int) -> int:
        """Number of timed calls of so many callables, the fewest where ``seconds`` asks for more."""
        return (runs + 1) * (self.repeats + self.warmup)

    def _once(self, run: Run) -> float:
        self.synchronise()
        start = self.now()
        run()
        self.synchronise()
        return self.now() - start


def device_facts(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """For headers: latencies compare only where these are equal."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:  # one name (a cloud's "AMD EPYC") covers processors several times apart in speed
        name = f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}"
        # Of two Xeons of one name the one with AMX is several times as fast in bf16; PyTorch does not tell.
        name += ", AMX" if "amx_tile" in (processor_flags() or ()) else ""
    return {
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "versions": versions(),
    }


def clock_of_models(device: torch.device) -> Clock:
    """The clock of whole models beside one another: calls that are short have three seconds in all."""
    return Clock(synchronise=synchroniser(device), seconds=SECONDS)


def synchroniser(device: torch.device) -> Callable[[], None]:
    """Waits until the device has done what it was given; nothing to wait for on a CPU."""
    if device.type == "cpu":
        return lambda: None
    return lambda: torch.accelerator.synchronize(device)


def load_average() -> float | None:
    """Threads that wanted a processor in the last minute, on average; None where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def crowding(load: float | None, processors: int, threads: int) -> str:
    """Warning that other processes were computing before anything was timed; empty if none were.

    A load that stays the same slows everything down alike, which repeats cannot show.
    """
    if load is None or load <= max(0.5, processors - threads):
        return ""
    return (
        f"busy machine: a load of {load:.1f} on {processors} processors before anything was timed; "
        "milliseconds are too long, ratios may be right"
    )


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Context with that many threads inside an operation; None: as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _processor() -> str:
    """The processor's own name, which ``platform`` knows on few systems."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
