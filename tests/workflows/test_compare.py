"""Comparisons: every number of a row from trials and statistics themselves; empty rows; refusals."""

import json
import math
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ldsearch.bench import Bench
from ldsearch.commands.compare import ComparisonRow, compare
from ldsearch.commands.evolve import evolve
from ldsearch.errors import RunError, SpaceError
from ldsearch.evaluation import Evaluator
from ldsearch.options import Compare, Evolve, TrainSupernet
from ldsearch.reports.figures import draw_comparison
from ldsearch.search.contenders import Contender, Limit, read_entry
from ldsearch.search.loop import SearchResult
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record
from ldsearch.training.recover import train_fixed
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.trial import Score, Trial
from tests.cli.conftest import CONFIG, Ldsearch, ldsearch, wild, wild_place

__all__ = ["ldsearch", "wild", "wild_place"]  # fixtures of the command line's tests
LONG, SHORT, RULE, OTHER = (f"runs/{name}" for name in ("tiny-evolve", "short", "rule", "small-evolve"))
STRATEGIES = ("surrogate", "nsga:depth+lengths", "every-other", "swaps")
BUDGETS = (0.5, 0.8)


def row_of(
    rows: list[ComparisonRow], strategy: str, budget: float, limit: str = "evaluations"
) -> ComparisonRow:
    (row,) = [r for r in rows if (r.strategy, r.budget, r.limit) == (strategy, budget, limit)]
    return row


@pytest.fixture(scope="module")
def of_strategies(wild: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, list[ComparisonRow]]:
    """The rows of four strategies; comparing again measures nothing and finds the same."""
    options = Compare(
        supernet=(wild / "runs/tiny",),
        strategy=STRATEGIES,
        budget=(0.1, 0.6, 0.9),
        evaluations=12,
        seeds=2,
        runs=wild / "runs",
    )
    folder = tmp_path_factory.mktemp("compared") / "compare"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(wild)
        rows = compare(options, folder)
        patch.setattr(Evaluator, "_run", lambda _, subnets: pytest.fail("again") if subnets else iter(()))
        again = compare(options, folder)
        bench = Bench.open(wild / "runs/tiny")
    pd.testing.assert_frame_equal(*(pd.DataFrame(map(vars, each)) for each in (rows, again)))
    assert len(pd.read_csv(folder / "compare.csv")) == len(rows) == 7 * 3 * 2
    assert (folder / "compare.png").stat().st_size > 10_000
    return bench, rows


def test_a_row_is_the_mean_of_what_its_searches_chose_and_gains_are_over_random_search(of_strategies) -> None:
    bench, rows = of_strategies
    controls = ["random", "random:depth+lengths", "random:depth"]
    assert list(dict.fromkeys(row.strategy for row in rows)) == [*STRATEGIES, *controls]
    for row in (row for row in rows if row.seeds):
        subnets = [Subnet.from_json(json.dumps(fields)) for fields in json.loads(row.subnets)]
        assert len(subnets) == row.seeds
        shares = bench.macs(subnets) / bench.macs([bench.full])
        assert shares.max() <= row.budget
        assert row.share == pytest.approx(shares.mean())
        assert row.score == pytest.approx(np.mean([bench.held_out.statistics(s).mean() for s in subnets]))
        assert row.low <= row.score <= row.high
        assert row.examples == bench.held_out.examples
    for strategy, control in zip(STRATEGIES, controls, strict=False):
        own, other = (row_of(rows, name, 0.9) for name in (strategy, control))
        assert own.gain == pytest.approx(own.score - other.score)
        assert own.gain_low <= own.gain <= own.gain_high
        assert math.isnan(other.gain)
    empty = row_of(rows, "surrogate", 0.1)
    assert (empty.seeds, empty.subnets, math.isnan(empty.score)) == (0, "", True)
    # Deterministic rules run once, those that draw once for each seed.
    assert [row_of(rows, rule, 0.9).seeds for rule in ("every-other", "swaps")] == [1, 2]


def test_at_equal_cost_nothing_spends_more_than_the_cheapest_search(of_strategies) -> None:
    _, rows = of_strategies
    searches = [row for row in rows if row.strategy.split(":")[0] in ("surrogate", "nsga", "random")]
    least = min(row.passes for row in searches if row.limit == "evaluations")
    assert max(row.passes for row in rows if row.limit == "passes") <= least + 1e-9


@pytest.fixture(scope="module")
def place(wild: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wild place with a shorter search, a rule, and a search of a smaller supernet of the same rows."""
    copy = shutil.copytree(wild, tmp_path_factory.mktemp("runs") / "place")
    (copy / "small.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        trainer = {"max_steps": "1"}
        small = TrainSupernet(data="reviews.csv", model="small.json", max_length=16, trainer=trainer)
        train_supernet(Path("runs/small"), small)
        evolve(Bench.open("runs/tiny"), SHORT, Evolve(evaluations=8, seed=5))
        evolve(Bench.open("runs/tiny"), RULE, Evolve(strategy="every-other"))
        evolve(Bench.open("runs/small"), OTHER, Evolve(evaluations=9))
    return copy


@pytest.fixture
def there(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That place; the working directory."""
    monkeypatch.chdir(place)
    return place


@pytest.fixture(scope="module")
def of_runs(place: Path, tmp_path_factory: pytest.TempPathFactory) -> list[ComparisonRow]:
    """The rows of finished runs of two supernets, of which never more than one is open."""
    opened: list[weakref.ref[object]] = []
    alive: list[int] = []
    plain = Bench.open

    def watched(*arguments: object, **named: object) -> Bench:
        alive.append(sum(bench() is not None for bench in opened))
        bench = plain(*arguments, **named)
        opened.append(weakref.ref(bench.supernet))
        return bench

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(Bench, "open", watched)
        options = Compare(finished=tuple(map(Path, (LONG, SHORT, RULE, OTHER))), budget=BUDGETS)
        rows = compare(options, tmp_path_factory.mktemp("found") / "compare")
    assert alive == [0, 0, 0, 0]  # each once to read its runs, once to score
    return rows


def test_a_run_chooses_by_its_own_scores_among_its_first_trials(
    place: Path, of_runs: list[ComparisonRow]
) -> None:
    tables = {run: pd.read_csv(place / run / "trials.csv") for run in (LONG, SHORT, OTHER, RULE)}
    seeded = [tables[run] for run in (LONG, SHORT, OTHER)]
    seeded += [
        pd.read_csv(place / run / "controls.csv").query("strategy == 'random'")
        for run in (LONG, SHORT, OTHER)
    ]
    count, least = min(map(len, seeded)), min(table["macs"].sum() for table in seeded)
    assert count < 10 < len(tables[LONG])
    for run, table in tables.items():
        affordable = table["macs"].cumsum() <= least * (1 + 1e-9)
        for limit, fits in {"evaluations": table.index < count, "passes": affordable}.items():
            for budget in BUDGETS:
                first, own = table[fits], row_of(of_runs, Path(run).name, budget, limit)
                assert own.evaluations == len(first)
                assert own.passes == pytest.approx(first["macs"].sum() / table["macs"][0])
                within = first[first["macs_share"] <= budget]
                within = within.sort_values(["score", "macs"], ascending=[False, True])
                assert own.seeds == min(1, len(within))
                if own.seeds:
                    best = within.iloc[0]
                    assert json.loads(own.subnets) == [json.loads(best["subnet"])]
                    assert (own.share, own.macs) == pytest.approx((best["macs_share"], best["macs"]))


def test_scores_are_those_that_the_run_recorded_on_rows_that_chose_nothing(
    place: Path, of_runs: list[ComparisonRow]
) -> None:
    known = {
        (Path(run).name, json.dumps([json.loads(row["subnet"])])): row["held_out_score"]
        for run in (SHORT, OTHER)
        for row in pd.read_csv(place / run / "frontier.csv").to_dict("records")
    }
    scored = {(row.strategy, row.subnets): row for row in of_runs}
    assert known.keys() & scored
    for own in known.keys() & scored:
        assert scored[own].score == pytest.approx(known[own])
        assert (scored[own].chosen_on, scored[own].split) == ("search", "report")
    gained, control = (row_of(of_runs, name, 0.8) for name in ("tiny-evolve", "tiny-evolve, random"))
    assert gained.gain == pytest.approx(gained.score - control.score)


def test_supernets_of_other_costs_are_drawn_against_macs(of_runs: list[ComparisonRow]) -> None:
    table = pd.DataFrame(map(vars, of_runs))
    (axes,) = draw_comparison(table).axes
    assert axes.get_xlabel() == "million MACs per example"
    alone = table[(table["supernet"] == "tiny") & (table["strategy"] != "rule")]
    (axes,) = draw_comparison(alone).axes
    assert axes.get_xlabel().startswith("budget")


def contender(costs: list[float], **kind: bool) -> Contender:
    macs = [Trial(Subnet.full(1), "accuracy", Score(0.5), {"macs": c}, 1, "search", 0.0, "") for c in costs]
    return Contender("any", (SearchResult(macs, "finished"),), None, **{"seeded": True, **kind})


def test_rules_and_searches_of_today_limit_no_count() -> None:
    run, today = contender([4.0, 3.0, 2.0], finished=True), contender([1.0, 1.0])
    rule = contender([1.0], seeded=False, finished=True)
    count, cost = Limit.of([run, today, rule])
    assert (count.evaluations, cost.macs) == (3, 2.0)
    assert [len(limit.first(run.results[0].trials)) for limit in (count, cost)] == [3, 0]
    assert [len(limit.first(rule.results[0].trials)) for limit in Limit.of([rule])] == [1, 1]


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    for text in ("magic", "every-other:depth", "surrogate:width"):
        with pytest.raises((RunError, SpaceError)):
            read_entry(text)
    with pytest.raises(RunError, match="strategies or runs"):
        compare(Compare(), tmp_path / "none")


def test_a_supernet_that_changed_is_refused(wild_place: Path, ldsearch: Ldsearch) -> None:
    path = wild_place / "runs/tiny/config.json"
    path.write_text(path.read_text().replace('"gelu"', '"relu"'))
    assert "searched other weights" in ldsearch.refused("compare", LONG)


@pytest.mark.usefixtures("there")
def test_the_command_sets_strategies_beside_a_run_and_prints_both_tables(ldsearch: Ldsearch) -> None:
    arguments = ("--strategy", "every-other", "--evaluations", 5, "--seeds", 1, "--budget", "0.8")
    outcome = ldsearch.done("compare", SHORT, *arguments)
    names = list(dict.fromkeys(pd.read_csv("runs/tiny-short-compare/compare.csv")["strategy"]))
    assert names == ["every-other", "random:depth", "short", "short, random"]
    for words in ("equally many evaluations", "as much spent"):
        assert outcome.out.count(words) == 1


HALF = Subnet.of_encoder([0, 2], [8, 4], 16)


@pytest.fixture(scope="module")
def alone(place: Path) -> Path:
    """A sub-network that was trained on its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        options = TrainSupernet(teacher="none", trainer={"max_steps": 4, "learning_rate": 1e-2})
        return train_fixed(Bench.open("runs/tiny", "search"), place / "runs/alone", HALF, options)


@pytest.mark.usefixtures("there")
def test_a_subnetwork_trained_alone_is_scored_with_its_own_weights(alone: Path, tmp_path: Path) -> None:
    supernet, own = Bench.open("runs/tiny", "search"), Bench.open(alone, "report")
    rows = compare(Compare(finished=(Path(SHORT), alone), budget=(0.1, 0.9)), tmp_path / "compare")
    statistics = own.evaluator.statistics(HALF)
    dear, cheap = (row_of(rows, "alone", budget) for budget in (0.9, 0.1))
    assert (dear.split, dear.examples, dear.seeds) == ("report", len(statistics), 1)
    assert dear.score == pytest.approx(statistics.mean())
    assert dear.share == pytest.approx((supernet.macs([HALF]) / supernet.macs([supernet.full]))[0])
    assert (cheap.seeds, cheap.subnets) == (0, "")
    inherited = supernet.held_out.statistics(HALF)
    assert (inherited != statistics).any()  # or it might as well be the supernet's


def test_two_of_one_name_and_a_subnetwork_of_other_rows_are_refused_before_anything_is_measured(
    there: Path, alone: Path, tmp_path: Path
) -> None:
    record = read_record(alone)
    splits = {name: {**fields, "fingerprint": "other"} for name, fields in record.splits.items()}
    few = {name: splits[name] for name in splits if name != "search"}
    for name, own, words in (
        ("inner/short", record.splits, "two of what is compared are called short"),
        ("other", splits, "other rows than what it is compared with"),
        ("fewer", few, "other rows than what it is compared with"),
    ):
        copy = shutil.copytree(alone, there / "runs" / name)
        replace(record, splits=own).save(copy)
        with pytest.raises(RunError, match=words):
            compare(Compare(finished=(Path(SHORT), copy)), tmp_path / "compare")
    assert not (tmp_path / "compare").exists()
