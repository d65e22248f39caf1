"""Claims on sub-networks: how workers that share a storage divide what there is to measure.

The claims of all workers are one log, in the order in which the storage took them. Who holds what is a
function of that log, so that all who read it agree, and of two claims on one sub-network the first wins. A
claim is a lease: it ends unless its worker renews it. A clock that is wrong by more than a lease, or a worker
that was stopped for longer, makes work be done again; it changes no result.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ldsearch.errors import LdsearchError

LEASE = 60.0  # seconds
LEAST = 4  # sub-networks of one part: fewer have few prefixes in common


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Args:
        worker: Who wrote it.
        at: When, in seconds since 1970 by that worker's clock.
        until: When its lease ends, of everything that it holds.
        names: What it claims besides; may be empty.
        dead: Workers that it has found dead: their leases have ended.
    """

    worker: str
    at: float
    until: float
    names: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Entry":
        """Read what ``to_fields`` wrote."""
        names, dead = (tuple(map(str, fields[key])) for key in ("names", "dead"))
        return cls(str(fields["worker"]), float(fields["at"]), float(fields["until"]), names, dead)

    def to_fields(self) -> dict[str, Any]:
        """Plain JSON values by name."""
        return asdict(self)


class Log(Protocol):
    """Keeps entries in one order for everyone."""

    def append(self, entry: Entry) -> None:
        """Add an entry, whole or not at all."""

    def news(self) -> list[Entry]:
        """The entries that were not returned before, in order."""

    def close(self) -> None:
        """Give back what this thread holds of the storage."""


@dataclass
class Holders:
    """Who holds what, after the entries so far.

    Args:
        holder: Worker by name of what is claimed.
        until: When each worker's lease ends.
    """

    holder: dict[str, str] = field(default_factory=dict)
    until: dict[str, float] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """Go one entry further."""
        for name in entry.names:
            if self.may_take(name, entry):
                self.holder[name] = entry.worker
        self.until.update(dict.fromkeys(entry.dead, -math.inf))
        self.until[entry.worker] = entry.until

    def may_take(self, name: str, entry: Entry) -> bool:
        """Whether nobody else holds it as the entry is written."""
        holder = self.holder.get(name, entry.worker)
        return holder == entry.worker or holder in entry.dead or self.until[holder] <= entry.at


class Claims:
    """The claims of this process on one log.

    Args:
        log: Where everybody's claims are written.
        worker: Names this process; None: it is named.
        lease: Seconds that a claim lasts unless it is renewed.
    """

    def __init__(self, log: Log, worker: str | None = None, lease: float | None = None) -> None:
        self.log = log
        self.worker = worker or worker_of(os.getpid())
        self.lease = LEASE if lease is None else lease
        self._holders = Holders()
        self._taken: set[str] = set()
        self._lock = threading.RLock()  # the thread that renews writes too

    def take(self, names: Sequence[str]) -> tuple[list[str], set[str]]:
        """Claim a part of what nobody else holds.

        A worker that is alone takes everything: nothing is faster. Of several each takes half of its share,
        so that who is done early finds more.

        Args:
            names: What is to be measured, neighbours beside each other.

        Returns:
            What this worker holds of the part now, in the given order, and what of that another worker held
            before whose lease has ended.
        """
        with self._lock:
            self._read()
            now = time.time()
            live = {worker for worker, until in self._holders.until.items() if until > now}
            gone = tuple(sorted(filter(_is_gone, live)))
            entry = Entry(self.worker, now, now + self.lease, dead=gone)
            free = [name for name in names if self._holders.may_take(name, entry)]
            workers = sorted({*live, self.worker} - {*gone})
            part = _part(free, len(workers), workers.index(self.worker))
            if not part and self.worker in live:
                return [], set()
            before = {name: self._holders.holder.get(name, self.worker) for name in part}
            # An entry that claims nothing says that this worker is there: the others leave it a share.
            self._append(Entry(self.worker, now, entry.until, tuple(part), gone))
            held = [name for name in part if self._holders.holder[name] == self.worker]
            self._taken.update(held)
            return held, {name for name in held if before[name] != self.worker}

    def lost(self, name: str) -> bool:
        """Whether this worker took it and another one has taken it over since.

        A lease that tempted nobody is renewed if less than half of it is left: storing takes time too.
        """
        if name not in self._taken:
            return False
        with self._lock:
            self._read()
            if self._holders.until[self.worker] <= time.time() + self.lease / 2:
                self._renew()
            return self._holders.holder[name] != self.worker

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the lease while the code inside runs; where it is stopped, give back everything."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self.lease / 3):
                # What cannot be renewed ends, and that is looked at before anything is stored.
                with contextlib.suppress(Exception):
                    self._renew()
            self.log.close()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        except LdsearchError:
            raise  # a storage that failed just now would keep its user waiting once more
        except BaseException:
            with contextlib.suppress(Exception):
                self._renew(0.0)
            raise
        finally:
            done.set()
            thread.join()

    def _renew(self, lease: float | None = None) -> None:
        now = time.time()
        self._append(Entry(self.worker, now, now + (self.lease if lease is None else lease)))

    def _append(self, entry: Entry) -> None:
        with self._lock:
            self.log.append(entry)
            self._read()

    def _read(self) -> None:
        for entry in self.log.news():
            self._holders.apply(entry)


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
    """Whether it was a process of this machine and is none any more: no lease need be waited for."""
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
