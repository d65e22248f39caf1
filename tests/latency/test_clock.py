"""The timing protocol, on a clock that is told what passes; threads that are put back; a busy machine."""

from functools import partial
from itertools import repeat

import numpy as np
import pytest
import torch

from ldsearch.errors import LdsearchError
from ldsearch.latency.clock import Clock, Timing, crowding, device_facts, threads
from tests.latency.planted_clock import Counted, PlantedClock


def test_each_callable_gets_its_own_time_and_warm_up_none():
    clock = PlantedClock()
    # Slow at first: two rounds of warm-up, in which the first is timed twice a round.
    first = clock.work("a", [9, 9, 9, 9, *[1.0] * 10])
    second = clock.work("b", [50, 50, *[3.0] * 5])
    rounds = Clock(repeats=5, warmup=2, now=clock)([first, second])
    assert np.allclose(rounds.seconds, [[1.0] * 5, [3.0] * 5])
    assert [timing.median for timing in rounds.timings] == pytest.approx([1, 3])
    assert not rounds.noise.noisy


def test_every_round_has_everybody_in_an_order_of_its_own():
    clock, progress = PlantedClock(), Counted()
    runs = [clock.work(name, repeat(1.0)) for name in "abc"]
    Clock(repeats=40, warmup=0, now=clock)(runs, progress)
    rounds = ["".join(clock.calls[start : start + 4]) for start in range(0, 160, 4)]
    assert all(sorted(names) == list("aabc") for names in rounds)
    assert len(set(rounds)) > 8  # of the twelve orders of two alike and two others
    assert progress.steps == 160 == Clock(repeats=40, warmup=0).calls(3)


def test_a_short_call_is_not_charged_for_what_stood_before_it():
    """Planted caches: whoever did not run last loads its data, 30 ms; a and d are the same model."""
    clock, latest = PlantedClock(), ""

    def run(name, seconds):
        nonlocal latest
        clock.time += seconds + (0.03 if name != latest else 0.0)
        clock.calls.append(name)
        latest = name

    runs = [partial(run, name, took) for name, took in (("a", 0.01), ("b", 0.05), ("c", 0.15), ("d", 0.01))]
    rounds = Clock(repeats=5, warmup=1, now=clock)(runs)
    assert np.allclose(rounds.seconds, np.array([[0.01], [0.05], [0.15], [0.01]]))
    assert rounds.noise.drift == pytest.approx(0)
    # The round of warm-up has no untimed calls; later ones have one each.
    assert len(clock.calls) == 5 + 5 * 10


def test_a_long_call_is_called_only_to_be_timed():
    for seconds, lead, calls in ((0.1, 0.2, 2 + 4), (0.3, 0.2, 4), (0.1, 0.0, 4)):
        clock = PlantedClock()
        Clock(1, 1, clock, lead=lead)([clock.work("a", repeat(seconds))])
        assert len(clock.calls) == calls


@pytest.mark.parametrize(
    ("repeats", "seconds", "rounds"),
    [(2, 0, 2), (2, 22, 5), (2, 25, 5), (2, 26, 6), (50, 9, 50), (2, 1e9, 100)],
)
def test_rounds_go_on_until_so_much_was_measured_but_not_without_end(repeats, seconds, rounds):
    clock = PlantedClock()
    runs = [clock.work("a", repeat(1.0)), clock.work("b", repeat(3.0))]  # five seconds a round
    assert Clock(repeats, 1, clock, seconds=seconds)(runs).seconds.shape == (2, rounds)


def test_quartiles_and_p95_are_those_of_the_repeats():
    # 1..5: quartiles at ranks 2 and 4; rank 0.95 x 4 lies 0.8 of the way from the fourth to the fifth.
    assert Timing.of(np.array([5.0, 1, 4, 2, 3])) == Timing(3.0, 2.0, 4.0, pytest.approx(4.8), 5)


def test_work_that_runs_on_after_the_call_is_waited_for():
    clock, queue = PlantedClock(), []

    def synchronise():
        while queue:
            clock.time += queue.pop()

    rounds = Clock(3, 0, clock, synchronise)([lambda: queue.append(7.0), lambda: queue.append(2.0)])
    assert np.allclose(rounds.seconds, [[7.0] * 3, [2.0] * 3])


def test_what_differs_from_itself_or_scatters_is_noise():
    orders = np.random.default_rng(0)
    slow = np.concatenate([orders.permutation(2) for _ in range(5)])  # the second time of each round
    for seconds, drift, spread in (
        ([1.0 + 0.1 * slow], 0.1, 0.0),
        ([repeat(1.0), [1, 2, 3, 4, 5]], 0.0, 2 / 3),
    ):
        clock = PlantedClock()
        noise = Clock(5, 0, clock)([clock.work("a", own) for own in seconds]).noise
        assert (noise.drift, noise.spread) == (pytest.approx(drift), pytest.approx(spread))
        said = f"noisy machine: the same model timed twice differs by {drift:.1%}"
        assert noise.describe().startswith(said)


def test_nothing_to_repeat_is_refused():
    with pytest.raises(LdsearchError, match="1 repeat or more, not 0"):
        Clock(repeats=0)


def test_facts_name_the_device_and_the_threads_of_the_moment():
    before = torch.get_num_threads()
    with threads(before + 1):
        facts = device_facts(torch.device("cpu"), torch.float32)
    assert (facts["threads"], facts["dtype"]) == (before + 1, "float32")
    kind, _, vectors = facts["device"].removesuffix(", AMX").rpartition(", ")
    assert kind.startswith("cpu: ")
    assert f"CPU capability usage: {vectors}" in torch.__config__.show()
    # A CUDA build of PyPI has a suffix that its metadata lack.
    assert facts["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    with threads(None):
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("load", "processors", "own", "busy"),
    [(1.2, 2, 1, True), (0.9, 2, 1, False), (0.4, 2, 2, False), (0.6, 2, 2, True), (None, 2, 2, False)],
)
def test_a_load_that_leaves_too_few_processors_is_said(load, processors, own, busy):
    assert crowding(load, processors, own).startswith("busy machine") == busy
