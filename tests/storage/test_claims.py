"""Claims: one winner each, leases that end, a log that says the same to everyone."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain, cycle

import pytest

from ldsearch.errors import RunError
from ldsearch.storage import claims
from ldsearch.storage.claims import Claims, Entry, Holders, worker_of


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
    """A stopwatch; what time it is, nobody may ask."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        raise AssertionError("clocks of two machines do not agree")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(claims, "time", clock)
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
    both = [Entry("a", ("x", "y")), Entry("b", ("y", "z"))]
    assert taken(both) == {"x": "a", "y": "a", "z": "b"}
    assert taken(both[::-1]) == {"x": "a", "y": "b", "z": "b"}


@pytest.mark.parametrize(
    ("between", "winner"),
    [
        ([], "b"),
        ([Entry("a")], "a"),  # it wrote after b had read
        ([Entry("a"), Entry("a", leaves=True)], "b"),
        ([Entry("c", ("x",), dead=(("a", 1),))], "c"),  # a third was first, and lives
        ([Entry("c", dead=(("a", 1),)), Entry("a")], "a"),  # it was stopped, and nobody had taken it over
        ([Entry("c", dead=(("a", 0),))], "b"),
    ],
)
def test_who_was_found_dead_loses_its_claims_unless_it_wrote_meanwhile(
    between: list[Entry], winner: str
) -> None:
    log = [Entry("a", ("x",)), *between, Entry("b", ("x",), dead=(("a", 1),))]
    assert taken(log)["x"] == winner


def test_a_log_that_loses_what_is_written_is_damaged() -> None:
    class Forgetful(Shared):
        def append(self, entry: Entry) -> None:
            """As a database whose rows were deleted under it."""

    with pytest.raises(RunError, match="is damaged: it does not hold what was just written"):
        Claims(Forgetful([]), "a").take(["x"])


def test_an_entry_comes_back_from_json() -> None:
    entry = Entry("a", ("x", "y"), (("b", 3), ("c", 0)), leaves=True)
    assert Entry.from_fields(json.loads(json.dumps(asdict(entry)))) == entry


def test_several_take_different_parts_of_neighbours_and_together_everything(clock: Clock) -> None:
    three = workers("a", "b", "c")
    for one in three:
        one.take([])  # it is there
    names = [f"{i:03}" for i in range(100)]
    parts = [one.take(names)[0] for one in three]
    assert [len(part) for part in parts] == [17, 14, 12]  # a sixth of what is free
    for part in parts:
        assert part == names[names.index(part[0]) :][: len(part)]
    for one in cycle(three):
        left = [name for name in names if name not in chain(*parts)]
        if not left:
            break
        parts.append([name for name in one.take(left)[0] if name in left])
        assert parts[-1]  # whoever is done early finds more
    assert Counter(chain(*parts)) == Counter(names)


def test_nothing_is_claimed_twice_until_the_lease_ends_and_then_it_counts_as_done_again(clock: Clock) -> None:
    a, b = workers("a", "b", lease=60)
    assert a.take(["x", "y"])[0] == ["x", "y"]
    assert b.take(["x", "y"]) == ([], set())
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


def test_who_writes_in_time_keeps_everything_and_who_comes_late_waits_a_lease(clock: Clock) -> None:
    a, b, late = workers("a", "b", "late", lease=60)
    a.take(["x"])
    b.take(["x"])
    for _ in range(5):
        clock.now += 40
        assert not a.lost("x")  # which renews
        assert b.take(["x"]) == ([], set())
    # What it reads first may be a year old or new: that is in no clock that it could ask.
    assert late.take(["x"]) == ([], set())
    clock.now += 59
    assert late.take(["x"]) == ([], set())
    clock.now += 1
    assert late.take(["x"]) == (["x"], {"x"})
    assert a.lost("x")


def test_stopwatches_that_began_at_another_time_agree(clock: Clock) -> None:
    a, b = workers("a", "b", lease=60)
    ahead = 86_400.0
    assert a.take(["x"])[0] == ["x"]
    for passed in (0, 30, 59):
        clock.now = 1000 + passed + ahead
        assert b.take(["x"]) == ([], set())
        clock.now = 1000 + passed
        assert not a.lost("x")
    clock.now = 1118 + ahead  # b heard of a at 1059 last, and a's machine goes off
    assert b.take(["x"]) == ([], set())
    clock.now = 1119 + ahead
    assert b.take(["x"])[0] == ["x"]


def test_a_machine_that_slept_says_that_it_lives_before_it_stores(clock: Clock) -> None:
    a, b = workers("a", "b", lease=60)
    b.take([])
    a.take(["x"])
    b.take(["x"])
    clock.now += 60
    assert b.take(["y"])[0] == ["y"]  # and finds a dead
    clock.now -= 59  # a stopwatch stands still in sleep
    assert not a.lost("x")
    clock.now += 60
    assert b.take(["x"]) == ([], set())


def test_who_ended_long_ago_gets_no_share_and_who_is_alone_takes_everything(clock: Clock) -> None:
    *gone, new = workers("a", "b", "c", "new")
    for one in gone:
        one.take([one.worker])
    names = [str(i) for i in range(100)]
    assert new.take(names) == (names, set())


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
    entries = [Entry(name, (name,)) for name in (gone, alive, elsewhere)]
    assert Claims(Shared(entries), one).take([gone, alive, elsewhere]) == ([gone], {gone})
