"""Claims: one winner each, leases that end, a log that says the same to everyone; storages that fail."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from ldsearch import claims
from ldsearch.claims import Claims, Entry, Holders, worker_of
from ldsearch.errors import RunError
from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from tests.test_storage import FULL, PRUNED, SHORT, trial

ROOT = Path(__file__).parent.parent
KINDS = ("sqlite:///{}/m.db", "journal:{}/m.log")


class Shared:
    """A log in memory, for as many readers as there are."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.read = 0

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)

    def news(self) -> list[Entry]:
        fresh = self.entries[self.read :]
        self.read += len(fresh)
        return fresh

    def close(self) -> None:
        """Nothing is held."""


class Clock:
    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(claims.time, "time", clock.time)
    return clock


def workers(*names: str, lease: float = 60.0) -> list[Claims]:
    entries: list[Entry] = []
    return [Claims(Shared(entries), name, lease) for name in names]


def taken(holders: Sequence[Entry]) -> dict[str, str]:
    state = Holders()
    for entry in holders:
        state.apply(entry)
    return state.holder


def test_of_two_claims_the_first_in_the_log_wins() -> None:
    both = [Entry("a", 1, 61, ("x", "y")), Entry("b", 0, 60, ("y", "z"))]  # whatever the clocks say
    assert taken(both) == {"x": "a", "y": "a", "z": "b"}
    assert taken(both[::-1]) == {"x": "a", "y": "b", "z": "b"}


@pytest.mark.parametrize(
    ("between", "winner"),
    [
        ([], "b"),  # a's lease ended at 60
        ([Entry("a", 50, 110)], "a"),  # renewed
        ([Entry("a", 50, 110), Entry("a", 51, 51)], "b"),  # renewed, then given back
        ([Entry("c", 65, 125, ("x",))], "c"),  # a third was first, and its lease runs
    ],
)
def test_a_claim_ends_with_its_lease(between: list[Entry], winner: str) -> None:
    log = [Entry("a", 0, 60, ("x",)), *between, Entry("b", 70, 130, ("x",))]
    assert taken(log)["x"] == winner


def test_what_a_dead_worker_held_is_free_at_once() -> None:
    assert taken([Entry("a", 0, 60, ("x",)), Entry("b", 1, 61, ("x",), dead=("a",))]) == {"x": "b"}


def test_a_worker_that_is_alone_takes_everything(clock: Clock) -> None:
    (one,) = workers("a")
    names = [str(i) for i in range(1000)]
    assert one.take(names) == (names, set())


def test_several_take_different_parts_of_neighbours_and_together_everything(clock: Clock) -> None:
    three = workers("a", "b", "c")
    for one in three:
        one.take([])  # it is there
    names = [f"{i:03}" for i in range(100)]
    parts = [one.take(names)[0] for one in three]
    assert [len(part) for part in parts] == [17, 14, 12]  # a sixth of what is free
    for part in parts:
        assert part == names[names.index(part[0]) :][: len(part)]
    left = [name for name in names if name not in chain(*parts)]
    while left:
        for one in three:
            part = [name for name in one.take(left)[0] if name in left]
            assert part  # whoever is done early finds more
            parts.append(part)
            left = [name for name in left if name not in part]
            if not left:
                break
    assert Counter(chain(*parts)) == Counter(names)


def test_nothing_is_claimed_twice_until_the_lease_ends_and_then_it_counts_as_done_again(clock: Clock) -> None:
    a, b = workers("a", "b", lease=60)
    assert a.take(["x", "y"])[0] == ["x", "y"]
    clock.now += 59
    assert b.take(["x", "y"]) == ([], set())
    clock.now += 1
    assert b.take(["x", "y"]) == (["x", "y"], {"x", "y"})
    assert a.lost("x")
    assert not b.lost("x")
    assert not a.lost("z")  # which it never took


def test_a_lease_that_ended_but_tempted_nobody_is_renewed_before_storing(clock: Clock) -> None:
    a, b = workers("a", "b")
    a.take(["x"])
    clock.now += 100
    assert not a.lost("x")
    assert b.take(["x"]) == ([], set())


def test_a_failure_gives_everything_back(clock: Clock) -> None:
    a, b = workers("a", "b")
    a.take(["x"])
    with pytest.raises(ZeroDivisionError), a.renewing():
        _ = 1 / 0
    assert b.take(["x"])[0] == ["x"]


def test_the_lease_is_renewed_while_the_work_runs() -> None:
    log = Shared([])
    one, renewed = Claims(log, "a", 0.06), threading.Event()
    one.take(["x"])
    with one.renewing():
        renewed.wait(0.2)
    assert len(log.entries) >= 4
    assert all(entry.names == () for entry in log.entries[1:])


def test_a_process_of_this_machine_that_ended_keeps_nobody_waiting() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    here, gone = worker_of(os.getpid()), worker_of(child.pid)
    alive, elsewhere, one = worker_of(os.getppid()), f"elsewhere/{child.pid}/1", here
    entries = [
        Entry(name, claims.time.time(), claims.time.time() + 60, (name,)) for name in (gone, alive, elsewhere)
    ]
    assert Claims(Shared(entries), one).take([gone, alive, elsewhere]) == ([gone], {gone})


PROGRAM = """
import sys
from ldsearch.storage import MeasurementCache
from tests.test_storage import trial
from ldsearch.subnet import Subnet
from ldsearch.claims import name_of
cache = MeasurementCache(sys.argv[1], "print")
print("ready", flush=True)
sys.stdin.readline()
subnets = {}
for reference in range(16, 28):
    subnet = Subnet.of_encoder(range(3), (9, 5, 1), reference)
    subnets[name_of(subnet.to_json())] = subnet
for name in subnets:
    held, again = cache.claims.take([name])
    assert not again
    if held:
        cache.put(trial(subnets[name]))
        print(name, flush=True)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_want_the_same_at_once_have_one_winner_each(kind: str, tmp_path: Path) -> None:
    """They also make the tables of a new file at once."""
    command = [sys.executable, "-c", PROGRAM, kind.format(tmp_path)]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(set(chain(*told))) == sum(map(len, told)) == 12
    cache = MeasurementCache(kind.format(tmp_path), "print")
    assert len(cache) == len(cache._study.trials) == 12
    assert cache.workers(one.subnet for one in cache.trials()) == sum(bool(names) for names in told)


@pytest.mark.parametrize("kind", KINDS)
def test_every_storage_keeps_what_was_measured_and_two_supernets_apart(kind: str, tmp_path: Path) -> None:
    storage = kind.format(tmp_path / "new")
    cache, other = MeasurementCache(storage, "print"), MeasurementCache(storage, "another supernet's")
    assert not (tmp_path / "new").exists()  # looking makes nothing
    cache.put(trial(SHORT, 0.1 + 0.2))
    other.put(trial(FULL, 0.5))
    cache.put(trial(PRUNED, float("nan")))
    again = MeasurementCache(storage, "print")
    assert [one.subnet for one in again.trials()] == [SHORT, PRUNED]
    found = again.get(SHORT)
    assert found is not None
    assert (found.score.value, dict(found.costs)) == (0.1 + 0.2, dict(trial(SHORT).costs))
    assert again.get(FULL) is None
    cache.put(trial(FULL))
    assert again.get(FULL) is None
    again.refresh()
    assert again.get(FULL) is not None


def test_the_first_of_two_measurements_counts_for_everybody(tmp_path: Path) -> None:
    one, other = (MeasurementCache(tmp_path / "m.db", "print") for _ in range(2))
    one.put(trial(SHORT, 0.25))
    other.put(trial(SHORT, 0.75))
    for cache in (one, other, MeasurementCache(tmp_path / "m.db", "print")):
        cache.refresh()
        found = cache.get(SHORT)
        assert found is not None
        assert found.score.value == 0.25


def test_a_journal_line_that_was_cut_short_is_undone_and_what_was_whole_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    cache = MeasurementCache(f"journal:{path}", "print")
    cache.put(trial(SHORT))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"study_id')
    assert len(MeasurementCache(f"journal:{path}", "print")) == 1
    MeasurementCache(f"journal:{path}", "print").put(trial(FULL))
    assert path.read_bytes().startswith(whole + b'{"op_code"')
    assert len(MeasurementCache(f"journal:{path}", "print")) == 2


@pytest.mark.parametrize("content", [b"no journal\n" * 9, b'{"a": 1}\n{"b": 2}\n', b"\xff\xfe\n\n"])
def test_a_damaged_journal_is_one_line_and_stays_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    path.write_bytes(content)
    with pytest.raises(RunError) as caught:
        MeasurementCache(f"journal:{path}", "print")
    assert str(caught.value) == (
        f"the measurement cache {path} is damaged: move it away; measurements will be made again"
    )
    assert path.read_bytes() == content


FULL_DISK = """
import resource, sys
from ldsearch.errors import RunError
from ldsearch.storage import MeasurementCache
from tests.test_storage import FULL, fill, trial
import signal, time
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
time.sleep = lambda seconds: None
cache = MeasurementCache(sys.argv[1], "print")
cache.put(trial(FULL))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    fill(cache)
except RunError as error:
    print(len(cache), error)
"""


def test_without_room_for_a_journal_it_is_one_line_and_what_was_stored_before_stays(tmp_path: Path) -> None:
    storage = f"journal:{tmp_path}/m.log"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, storage, "20001"], cwd=ROOT, capture_output=True, text=True
    )
    assert "cannot use the measurement cache" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    count = int(done.stdout.split()[0])
    assert count > 5
    cache = MeasurementCache(storage, "print")
    assert len(cache) == count
    cache.put(trial(Subnet.of_encoder((1,))))
    assert len(MeasurementCache(storage, "print")) == count + 1
