"""Budgets in milliseconds: predicted from a table, measured before they are reported."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ldsearch.errors import BudgetError
from ldsearch.latency.clock import Noise, Timing
from ldsearch.latency.measuring import Entry, Line
from ldsearch.selector import parse_selector
from ldsearch.trial import Score, Trial
from ldsearch.workflows import confirm
from ldsearch.workflows.confirm import TRIES, Confirmed, confirmed, know_latency
from ldsearch.workflows.workbench import Workbench
from tests.cli.conftest import Ldsearch, read

BUDGET = "@batch=2,length=16"


@pytest.fixture
def tabled(ldsearch: Ldsearch, place: Path) -> Path:
    arguments = ("--batch", 2, "--length", 16, "--repeats", 2)
    outcome = ldsearch("profile", "runs/tiny", "--table", "runs/tiny-latency.csv", *arguments)
    assert outcome.code == 0, outcome.err
    return place


def test_what_was_chosen_is_measured(ldsearch: Ldsearch, tabled: Path) -> None:
    outcome = ldsearch("evolve", "--budget", f"900s{BUDGET}", "--evaluations", 6)
    assert outcome.code == 0, outcome.err
    assert "ms measured" in outcome.out
    run = read(tabled / "runs/tiny-evolve/run.json")
    assert run["latency"]["measured_ms"] > 0
    assert run["latency"]["tries"] == 1
    best = read(tabled / "runs/tiny-evolve/best.json")
    assert best["costs"]["latency"] == run["latency"]["predicted_ms"]
    assert ldsearch("export", "runs/tiny-evolve", "out").code == 0


def test_the_prediction_is_the_tables(tabled: Path) -> None:
    bench = Workbench.open("runs/tiny")
    know_latency(bench, parse_selector(budget=f"5ms{BUDGET}"))
    space = bench.length_space(None, False)
    subnets = [space.smallest(), space.largest(), bench.full]
    from ldsearch.latency.table import LatencyTable

    table = LatencyTable.load(confirm.table_of(bench))
    costs = [own["latency"] for own in bench.evaluator.costs_of(subnets)]
    np.testing.assert_allclose(costs, table.predict(subnets, 2, 16))


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (f"0.000001ms{BUDGET}", "no sub-network meets the budget"),
        ("5ms@batch=3,length=16", "has no batch 3"),
        ("5ms@batch=2,length=99", "ends at 16 tokens"),
        ("5ms", "needs its batch and length"),
    ],
)
def test_what_no_table_can_answer_is_refused(
    ldsearch: Ldsearch, tabled: Path, budget: str, words: str
) -> None:
    outcome = ldsearch("evolve", "--budget", budget, "--evaluations", 6)
    assert outcome.code == 2
    assert words in outcome.err
    assert not (tabled / "runs/tiny-evolve").exists()


def test_without_a_table_the_command_that_makes_it_is_named(ldsearch: Ldsearch, place: Path) -> None:
    outcome = ldsearch("evolve", "--budget", f"5ms{BUDGET}")
    assert outcome.code == 2
    assert "--table" in outcome.err
    assert "--batch 2 --length 16" in outcome.err


def planted(monkeypatch: pytest.MonkeyPatch, milliseconds: dict[float, float]) -> None:
    """What is predicted to take so long takes another time."""

    def measured(bench: Workbench, trial: Trial, budget: object) -> Confirmed:
        median = milliseconds[trial.costs["latency"]] / 1e3
        timing = Timing.of(np.full(3, median))
        line = Line(Entry(trial.subnet, "eager"), "forward", timing, 1.0, 0.5, 0.5, 0.5, None)
        return Confirmed(trial, line, 100.0, Noise(0.0, 0.0), 1, {"threads": 1})

    monkeypatch.setattr(confirm, "_measured", measured)


def candidates(bench: Workbench, predicted: list[float]) -> list[Trial]:
    """The dearer the better."""
    subnets = list(bench.length_space(None, False).enumerate())[: len(predicted)]
    return [
        Trial(s, "accuracy", Score(ms / 100), {"macs": ms, "latency": ms}, 9, "search", 0.0, "f")
        for s, ms in zip(subnets, predicted, strict=True)
    ]


def test_a_choice_that_turns_out_slower_gives_way_to_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Workbench.open("runs/tiny")
    trials = candidates(bench, [1.0, 2.0, 3.0, 9.0])
    planted(monkeypatch, {1.0: 1.0, 2.0: 4.5, 3.0: 6.0})
    selector = parse_selector(budget=f"5ms{BUDGET}")
    full = replace(trials[-1], costs={"macs": 9.0, "latency": 9.0})
    found = confirmed(bench, trials, full, selector)
    assert found is not None
    assert (found.trial, found.measured, found.tries) == (trials[1], pytest.approx(4.5), 2)
    assert "4.50 ms measured, 2.00 ms predicted (-56%)" in found.describe()
    planted(monkeypatch, dict.fromkeys((1.0, 2.0, 3.0), 7.0))
    with pytest.raises(BudgetError, match=r"took 7.00 \(predicted 3.00\), .* ms: measure the table again"):
        confirmed(bench, trials, full, selector)
    assert confirmed(bench, trials, full, parse_selector(budget="0.5")) is None


def test_it_gives_up_after_some_tries(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench.open("runs/tiny")
    trials = candidates(bench, [1.0, 1.1, 1.2])
    trials = [replace(trials[0], costs={"macs": 1.0, "latency": 1.0 + i / 10}) for i in range(9)]
    asked: list[float] = []

    def measured(bench: Workbench, trial: Trial, budget: object) -> Confirmed:
        asked.append(trial.costs["latency"])
        line = Line(Entry(trial.subnet, "eager"), "forward", Timing.of(np.ones(3)), 1.0, 0.5, 0.5, 0.5, None)
        return Confirmed(trial, line, 1.0, Noise(0.0, 0.0), 1, {"threads": 1})

    monkeypatch.setattr(confirm, "_measured", measured)
    with pytest.raises(BudgetError):
        confirmed(bench, trials, trials[-1], parse_selector(budget=f"5ms{BUDGET}"))
    assert len(asked) == TRIES == len(set(asked))
