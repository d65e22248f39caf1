"""Memory of a search: what is taken, what a batch may take, and what is left for states to come back to."""

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from ldsearch.errors import RunError

GIB = 2**30
# What a search may take in all, unless it is told, or the model alone makes it more.
DEFAULT_BOUND = 3 * GIB
# The most for one batch: more rows would not be faster.
WORK = GIB // 2
# Beside the states: what strategies, storage, tables and figures load and build, and what the allocator
# cannot give back (measured: 0.25 GiB on searches of 2,000 rows).
RESERVE = int(0.35 * GIB)
# Room for states of earlier generations where the model leaves less of the default.
_COMFORTABLE = GIB


def peak_memory() -> int:
    """Bytes of this process's largest resident set so far; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    # Kibibytes, but on macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def describe_peak_memory() -> str:
    """The most memory this process has had."""
    gib = f"peak memory {peak_memory() / GIB:.1f} GiB"
    if torch.cuda.is_available():
        gib += f", {torch.cuda.max_memory_allocated() / GIB:.1f} GiB on the device"
    return gib


def taken(device: torch.device) -> int:
    """Bytes that are taken now: of a GPU where the model is on one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    release()
    return resident()


def resident() -> int:
    """Bytes of this process's resident set; where the system does not say, its largest so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_memory()
    import resource

    return pages * resource.getpagesize()


def release() -> None:
    """Give memory that was freed back to the system, which glibc keeps; elsewhere nothing."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


@dataclass(frozen=True)
class Memory:
    """How a search divides its memory, in bytes.

    Args:
        loaded: What the model, the data and everything else have taken.
        least: What the longest row takes by itself.
        bound: What all may take; None: ``DEFAULT_BOUND``, or more where that leaves no room for states.
    """

    loaded: int
    least: int
    bound: float | None = None

    @property
    def needed(self) -> int:
        """With batches of one row, and nothing kept for later generations."""
        return self.loaded + RESERVE + self.least

    @property
    def left(self) -> int:
        """For a batch, and for states of earlier generations."""
        bound = self.bound
        if bound is None:
            bound = max(DEFAULT_BOUND, self.needed + WORK + _COMFORTABLE)
        return max(self.least, int(bound) - self.loaded - RESERVE)

    @property
    def work(self) -> int:
        """For the states and temporaries of one batch."""
        # A power of two, so that batches do not follow every change of what is loaded.
        return max(self.least, min(WORK, 1 << (self.left // 2).bit_length() - 1))

    @property
    def outputs(self) -> int:
        """For the outputs of sub-networks that run together, on all rows."""
        return self.left // 8

    @property
    def cache(self) -> int:
        """For states that later generations may need."""
        return max(0, self.left - self.work - self.outputs)

    def check(self) -> None:
        """Refuse a bound that not even batches of one row stay below.

        Raises:
            RunError: With the least that will do.
        """
        if self.bound is not None and self.bound < self.needed:
            least = (self.needed * 20 // GIB + 2) / 20  # rounded up, and some for what differs next time
            raise RunError(
                f"--max-memory {self.bound / GIB:g} is too little: model and data take "
                f"{self.loaded / GIB:.2f} GiB, and a search {(RESERVE + self.least) / GIB:.2f} GiB beside "
                f"them; {least:g} is the least"
            )
