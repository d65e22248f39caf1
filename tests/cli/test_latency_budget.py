"""Budgets in milliseconds: predicted from a table, measured before they are reported."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ldsearch.bench import Bench
from ldsearch.costs.named import COSTS
from ldsearch.errors import BudgetError, LdsearchError
from ldsearch.latency import runtimes
from ldsearch.latency.clock import Noise
from ldsearch.latency.table import LatencyTable
from ldsearch.options import flags
from ldsearch.runs.run import Run
from ldsearch.search.latencies import Latencies, choose
from ldsearch.subnet import Subnet
from ldsearch.trials.goal import Goal
from ldsearch.trials.trial import Score, Trial
from tests.cli.conftest import Ldsearch, read
from tests.export.conftest import FASTER

BUDGET = "@batch=2,length=16"


@pytest.fixture
def tabled(ldsearch: Ldsearch, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place with a table of latencies; its times are planted, for those of a model so small are noise."""
    kept, table = tmp_path_factory.getbasetemp() / "latency-once.csv", place / "runs/tiny-latency.csv"
    if not kept.exists():
        arguments = ("--batch", 2, "--length", 16, "--repeats", 2)
        ldsearch.done("profile", "runs/tiny", "--table", table.relative_to(place), *arguments)
        shutil.copy(table, kept)
    measured = LatencyTable.load(kept)
    planted = {key: (ms := 0.001 * sum(key[1:]), ms, ms, 2) for key in measured.cells}
    replace(measured, cells=planted).save(table)
    return place


def test_a_latency_budget_searches_by_latency_and_times_what_it_found_in_the_fastest_runtime(
    ldsearch: Ldsearch, tabled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("evolve", "--budget", f"900s{BUDGET}", "--evaluations", 8)
    outcome = ldsearch.done(*asked)
    assert "ms measured" in outcome.out
    assert "what the full model takes here" in outcome.err
    folder = tabled / "runs/tiny-evolve-latency"
    run, best = (read(folder / name) for name in ("run.json", "best.json"))
    assert run["costs"] == ["latency"]
    assert run["identity"]["costs"] == ["latency"]
    assert (run["latency"]["batch"], run["latency"]["length"]) == (2, 16)
    assert best["costs"]["latency"] == run["latency"]["predicted_ms"]
    # No point of the frontier is dearer in predicted milliseconds and worse than another.
    trials, front = (pd.read_csv(folder / name) for name in ("trials.csv", "frontier.csv"))
    first = trials.drop_duplicates(["latency", "score"])
    dominated = [
        ((first["latency"] <= row.latency) & (first["score"] >= row.score)).sum() > 1
        for row in first.itertuples()
    ]
    assert first["on_frontier"].tolist() == [not worse for worse in dominated]
    assert front["latency"].is_monotonic_increasing
    # Everything on the frontiers was timed, search and controls, and the full model.
    table = pd.read_csv(folder / "latency.csv")
    timed, (runtime,) = set(table["subnet"]), set(table["runtime"])
    assert run["latency"]["runtime"] == runtime
    controls = pd.read_csv(folder / "controls.csv")
    assert {*front["subnet"], *controls[controls["on_frontier"]]["subnet"], trials["subnet"][0]} <= timed
    assert len(timed) == run["latency"]["points"]
    with Image.open(folder / "tradeoff.png") as figure:
        assert figure.size[0] > 1000
    again = flags("evolve", Run.open(folder).options)
    assert f"--budget 900s{BUDGET}" in again
    # A run that goes on keeps its runtime, whatever would be the fastest then.
    with monkeypatch.context() as patch:
        patch.setattr("ldsearch.search.latencies.time_full_model", None)
        ldsearch.done(*asked)
    assert read(folder / "run.json")["latency"]["runtime"] == runtime
    # A speed-up is over the full model's own latency; what was measured answers.
    ldsearch.done("evolve", "--budget", f"1x{BUDGET}", "--evaluations", 8)
    best, full = read(folder / "best.json"), trials["latency"][0]
    assert best["selector"] == f"budget 1x{BUDGET}"
    assert best["costs"]["latency"] <= full == pytest.approx(best["full_costs"]["latency"])
    assert len(pd.read_csv(folder / "trials.csv")) == len(trials)
    ldsearch.done("report", "runs/tiny-evolve-latency", "--output", "page.html")


def test_an_objective_of_latency_takes_any_goal(ldsearch: Ldsearch, tabled: Path) -> None:
    arguments = ("evolve", "--objective", f"macs+latency{BUDGET}", "--evaluations", 8, "--budget", "0.9")
    ldsearch.done(*arguments)
    run = read(tabled / "runs/tiny-evolve-macs-latency/run.json")
    assert run["costs"] == ["macs", "latency"]
    assert run["latency"]["median_ms"] > 0
    ldsearch.done("evolve", "--strategy", "every-other", "--objective", f"latency{BUDGET}")
    assert read(tabled / "runs/tiny-every-other-latency/run.json")["latency"]["points"] == 2


def test_a_dry_run_with_a_latency_times_no_model(ldsearch: Ldsearch, tabled: Path, monkeypatch) -> None:
    for timing in ("time_full_model", "time_whole"):
        monkeypatch.setattr(f"ldsearch.search.latencies.{timing}", None)
    before = (tabled / "runs/tiny-latency.csv").read_bytes()
    told = {
        "auto": f"full model in {', '.join(runtimes.candidates())},",
        "onnx-int8": "whole models in onnx-int8,",
        "own": "",
    }
    for runtime, said in told.items():
        flags = ("--budget", f"0.001ms{BUDGET}", "--runtime", runtime, "--dry-run")
        planned = ldsearch("evolve", *flags)
        assert planned.code == (2 if runtime == "own" else 0), planned.err
        assert said in planned.err
    assert "no sub-network meets the budget" in planned.err  # by the table's own path, which it knows
    assert (tabled / "runs/tiny-latency.csv").read_bytes() == before


class Tokens:
    """A cost of one's own: tokens that leave the blocks."""

    name = "tokens"

    def __init__(self, supernet, workload) -> None:
        self.blocks = supernet.blocks

    def __call__(self, subnets):
        kept = [own.encoder.lengths.tokens if own.encoder.lengths else () for own in subnets]
        return np.array([sum(own) or 16 * self.blocks for own in kept], dtype=np.float64)


def test_the_choice_is_by_milliseconds_of_the_named_runtime(ldsearch: Ldsearch, tabled: Path) -> None:
    asked = ("evolve", "--budget", f"900s{BUDGET}", "--evaluations", 6, "--runtime", "onnx-int8")
    outcome = ldsearch.done(*asked, "--name", "int8")
    timed = pd.read_csv(tabled / "runs/int8/latency.csv")
    assert set(timed["runtime"]) == {"onnx-int8"}
    run = read(tabled / "runs/int8/run.json")
    assert run["latency"]["runtime"] == run["identity"]["runtime"] == "onnx-int8"
    assert "onnx-int8," in outcome.out
    assert "full in onnx-int8" in (tabled / "runs/tiny-latency.csv").read_text()  # kept for the next search


def test_a_cost_of_ones_own_is_minimised_and_budgeted(ldsearch: Ldsearch, place: Path) -> None:
    for name in ("tokens", "joules"):
        COSTS.register(name, Tokens)
    try:
        with pytest.raises(LdsearchError, match="'joules' calls itself 'tokens'"):
            _ = Bench.open("runs/tiny").evaluator
        COSTS.remove("joules")
        asked = ("evolve", "--objective", "tokens", "--evaluations", 8, "--budget")
        ldsearch.done(*asked, "24tokens")
        run = read(place / "runs/tiny-evolve-tokens/run.json")
        assert run["costs"] == ["tokens"]
        best = read(place / "runs/tiny-evolve-tokens/best.json")
        lengths = best["subnet"]["encoder"]["lengths"]["tokens"]
        assert best["costs"]["tokens"] == sum(lengths) <= 24
        assert "latency" not in best["costs"]
        trials = pd.read_csv(place / "runs/tiny-evolve-tokens/trials.csv")
        assert trials["tokens"][0] == 32
        assert "no sub-network meets the budget 1tokens" in ldsearch(*asked, "1tokens").err
    finally:
        COSTS.remove("tokens")


# Predicted milliseconds; the dearer the better.
TRIALS = [
    Trial(
        Subnet.full(int(ms)), "accuracy", Score(ms / 100), {"macs": ms, "latency": ms}, 9, "search", 0.0, "f"
    )
    for ms in (1.0, 2.0, 3.0, 9.0)
]


def timed(trials: list[Trial], measured: list[float]) -> Latencies:
    """Sub-networks that take as long as is said; the last is the full model."""
    shares = [0.5] * (len(trials) - 1) + [1.0]
    lines = {
        trial.subnet: replace(
            FASTER,
            subnet=trial.subnet,
            median_ms=ms,
            full_ms=measured[-1],
            ratio=ms / measured[-1],
            runtime_ratio=ms / measured[-1],
            macs_ratio=share,
        )
        for trial, ms, share in zip(trials, measured, shares, strict=True)
    }
    predicted = {trial.subnet: trial.costs["latency"] for trial in trials}
    return Latencies(lines, predicted, Noise(0.0, 0.0), {"threads": 1})


def test_what_was_measured_chooses_not_what_was_predicted() -> None:
    trials = TRIALS
    goal = Goal.parse(budget=f"5ms{BUDGET}")
    found = timed(trials, [1.0, 4.5, 6.0, 10.0])
    assert choose(trials, trials[-1], goal, None) == trials[2]
    assert choose(trials, trials[-1], goal, found) == trials[1]
    # Faster than predicted counts as well, what was not timed does not.
    assert choose(trials, trials[-1], goal, timed(trials, [1.0, 2.0, 3.0, 4.9])) == trials[3]
    assert choose(trials[:1], trials[-1], goal, found) == trials[0]
    slow = timed(trials, [7.0, 7.0, 7.0, 10.0])
    with pytest.raises(BudgetError, match=r"measured on this device, none .* costs 0\.700 of the full model"):
        choose(trials, trials[-1], goal, slow)


def test_errors_of_the_prediction_are_those_of_hand() -> None:
    trials = TRIALS
    found = timed(trials, [2.0, 2.0, 2.5, 9.0])
    facts = found.to_dict(trials[0].subnet)
    # -50%, 0, +20% and 0 of the full model.
    assert facts["mean_error"] == pytest.approx(0.7 / 4)
    assert facts["bias"] == pytest.approx(-0.3 / 4)
    # Ranks 1 2 3 4 beside 1.5 1.5 3 4.
    assert facts["rank_correlation"] == pytest.approx(0.9486833)
    said = found.describe(trials[0].subnet)
    assert "2.00 ms measured, 1.00 ms predicted (-50%)" in said[0]
    assert "off by 17.5% in the mean (-7.5%), ranks agree by 0.949" in said[1]
    assert len(said) == 2
    slow = timed(trials, [2.0, 8.9, 8.8, 9.0])
    assert slow.describe(trials[1].subnet)[0].count("not faster than the full model") == 1
    assert slow.describe(trials[0].subnet)[2].startswith("2 of them have fewer MACs")
    one = timed(trials[-2:], [2.0, 9.0])
    assert one.to_dict(trials[-1].subnet)["rank_correlation"] is None
