"""Claims on sub-networks: how workers that share a storage divide what there is to measure.

The claims of all workers are one log, in the order in which the storage took them. Who holds what is a
function of that log, so that all who read it agree, and of two claims on one sub-network the first wins. A
claim is a lease: it ends unless its worker writes on. Clocks of two machines are never compared: who has read
nothing of a worker for a lease, by its own stopwatch, writes that it is dead, and that counts unless the
worker wrote meanwhile. A worker that was stopped for longer makes work be done again; it changes no result.
"""

import contextlib
import functools
import hashlib
import math
import os
import platform
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ldsearch.errors import LdsearchError, RunError

LEASE = 60.0  # seconds
LEAST = 4  # sub-networks of one part: fewer have few prefixes in common


@dataclass(frozen=True)
class Entry:
    """One entry of the claim log; writing it shows that its worker is running.

    Args:
        worker: Who wrote it.
        names: What it claims besides what it holds; may be empty.
        dead: Workers it presumes dead, each with the number of its entries read by then.
        leaves: Whether its worker releases everything it holds.
    """

    worker: str
    names: tuple[str, ...] = ()
    dead: tuple[tuple[str, int], ...] = ()
    leaves: bool = False

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Entry":
        """Read an entry from its fields, as JSON has them."""
        dead = tuple((str(worker), int(read)) for worker, read in fields["dead"])
        return cls(str(fields["worker"]), tuple(map(str, fields["names"])), dead, bool(fields["leaves"]))


class Log(Protocol):
    """Append-only log whose order is the same for every reader."""

    def append(self, entry: Entry) -> None:
        """Append an entry atomically."""

    def news(self) -> list[Entry]:
        """Entries since the previous call, in order."""

    def close(self) -> None:
        """Release this thread's database session."""


@dataclass
class Holders:
    """State of the claims after the entries applied so far.

    Args:
        holder: Worker by name of what is claimed.
        written: How many entries each worker wrote.
        dead: Workers whose claims anyone may take, until they write again.
    """

    holder: dict[str, str] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)
    dead: set[str] = field(default_factory=set)

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        self.written[entry.worker] += 1
        self.dead.discard(entry.worker)
        # A worker that wrote after it was last read is alive.
        self.dead.update(worker for worker, read in entry.dead if self.written[worker] == read)
        if entry.leaves:
            self.dead.add(entry.worker)
        for name in entry.names:
            if self.holder.get(name, entry.worker) in {entry.worker, *self.dead}:
                self.holder[name] = entry.worker


class Claims:
    """Claims of this process on one log.

    Args:
        log: Shared by all workers.
        worker: Name of this process; None: a unique one.
        lease: Seconds that a claim lasts unless it is renewed.
    """

    def __init__(self, log: Log, worker: str | None = None, lease: float | None = None) -> None:
        self.log = log
        self.worker = worker or worker_of(os.getpid())
        self.lease = LEASE if lease is None else lease
        self._holders = Holders()
        self._heard: dict[str, float] = {}  # by this process's stopwatch
        self._met: set[str] | None = None  # who wrote since this process first read
        self._taken: set[str] = set()
        self._lock = threading.RLock()  # the thread that renews writes too

    def take(self, names: Sequence[str]) -> tuple[list[str], set[str]]:
        """Claim a part of what no other worker holds.

        A lone worker takes everything. Each of several takes half of its share, so that a fast worker finds
        more to do.

        Args:
            names: What is to be measured, ordered so that neighbours share prefixes.

        Returns:
            What this worker holds of the part now, in the given order, and what of that another worker held
            before whose lease has ended.

        Raises:
            RunError: If the log does not give back what is appended to it.
        """
        with self._lock:
            self._read()
            state = self._holders
            holders = {name: state.holder.get(name, self.worker) for name in names}
            others = {*holders.values(), *(self._met or ())} - {self.worker} - state.dead
            dead = {worker for worker in others if self._silent(worker) or _is_gone(worker)}
            free = [name for name in names if holders[name] in {self.worker, *state.dead, *dead}]
            workers = sorted({*others - dead, self.worker})
            part = _part(free, len(workers), workers.index(self.worker))
            if not part and not self._silent(self.worker):
                return [], set()
            # An entry that claims nothing says that this worker is there: the others leave it a share.
            presumed = tuple((worker, state.written[worker]) for worker in sorted(dead))
            self._append(Entry(self.worker, tuple(part), presumed))
            if not state.holder.keys() >= set(part):
                raise RunError(
                    "the measurement cache is damaged: it does not hold what was just written; move it away, "
                    "measurements will be made again"
                )
            held = [name for name in part if state.holder[name] == self.worker]
            self._taken.update(held)
            return held, {name for name in held if holders[name] != self.worker}

    def lost(self, name: str) -> bool:
        """Whether another worker has taken over a claim of this one.

        A lease with less than half of its time left is renewed, so that it lasts while storing.
        """
        if name not in self._taken:
            return False
        with self._lock:
            self._read()
            if self.worker in self._holders.dead or self._silent(self.worker, self.lease / 2):
                self._append(Entry(self.worker))
            return self._holders.holder[name] != self.worker

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the lease while the code inside runs; where it is stopped, give back everything."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self.lease / 3):
                # What cannot be renewed ends, and that is looked at before anything is stored.
                with contextlib.suppress(Exception):
                    self._append(Entry(self.worker))
            self.log.close()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        except LdsearchError:
            raise  # a storage that failed just now would keep its user waiting once more
        except BaseException:
            with contextlib.suppress(Exception):
                self._append(Entry(self.worker, leaves=True))
            raise
        finally:
            done.set()
            thread.join()

    def _silent(self, worker: str, seconds: float | None = None) -> bool:
        """Whether nothing was read of a worker for that many seconds; None: a lease."""
        heard = self._heard.get(worker, -math.inf)
        return time.monotonic() - heard >= (self.lease if seconds is None else seconds)

    def _append(self, entry: Entry) -> None:
        with self._lock:
            self.log.append(entry)
            self._read()

    def _read(self) -> None:
        news = self.log.news()
        for entry in news:
            self._holders.apply(entry)
        wrote = {entry.worker for entry in news}
        self._heard.update(dict.fromkeys(wrote, time.monotonic()))
        # The entries of the first reading may be old; a worker that holds a claim may still be alive.
        self._met = set() if self._met is None else self._met | wrote


def name_of(text: str) -> str:
    """A short name for a canonical JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _part(free: Sequence[str], workers: int, rank: int) -> Sequence[str]:
    """Neighbours; another part for each worker, so that they do not run for the same."""
    if workers == 1 or not free:
        return free
    size = max(LEAST, math.ceil(len(free) / (2 * workers)))
    start = size * (rank % math.ceil(len(free) / size))
    return free[start : start + size]


@functools.cache
def worker_of(pid: int) -> str:
    """A name for a process of this machine that no other has."""
    return f"{machine()}/{pid}/{uuid.uuid4().hex[:8]}"


@functools.cache
def machine() -> str:
    """Names the machine, or the container, whose process ids can be looked up from here."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"))
        parts.append(os.readlink("/proc/self/ns/pid"))
    name = platform.node().replace("/", "-") or "machine"
    return f"{name}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def _is_gone(worker: str) -> bool:
    """Whether the worker is an ended process of this machine, whose lease need not be awaited."""
    home, _, rest = worker.partition("/")
    pid = rest.partition("/")[0]
    if home != machine() or not pid.isdigit() or os.name == "nt":  # where signal 0 would end it
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
