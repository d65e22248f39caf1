"""Finished runs side by side: their choices from their own tables by hand; what cannot be compared."""

import json
import shutil
import weakref
from pathlib import Path

import pandas as pd
import pytest

from ldsearch.bench import Bench
from ldsearch.commands.compare import compare
from ldsearch.commands.comparison import Comparison, ComparisonRow, Contender, Limit
from ldsearch.commands.evolve import evolve
from ldsearch.commands.options import Evolve, TrainSupernet
from ldsearch.commands.train_supernet import train_supernet
from ldsearch.errors import RunError
from ldsearch.reports.figures import draw_comparison
from ldsearch.search.loop import SearchResult
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial
from tests.cli.conftest import CONFIG, Ldsearch, ldsearch, wild, wild_place

__all__ = ["ldsearch", "wild", "wild_place"]  # fixtures of the command line's tests
LONG, SHORT, RULE, OTHER = (f"runs/{name}" for name in ("tiny-evolve", "short", "rule", "small-evolve"))
BUDGETS = (0.5, 0.8)


@pytest.fixture(scope="module")
def place(wild: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wild place with a shorter search, a rule, and a search of a smaller supernet of the same rows."""
    copy = tmp_path_factory.mktemp("runs") / "place"
    shutil.copytree(wild, copy)
    (copy / "small.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        small = TrainSupernet(
            data="reviews.csv", model="small.json", max_length=16, trainer={"max_steps": "1"}
        )
        train_supernet(Path("runs/small"), small)
        evolve(Bench.open("runs/tiny"), SHORT, Evolve(evaluations=8, seed=5))
        evolve(Bench.open("runs/tiny"), RULE, Evolve(strategy="every-other"))
        evolve(Bench.open("runs/small"), OTHER, Evolve(evaluations=9))
    return copy


@pytest.fixture(scope="module")
def found(place: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[ComparisonRow], list[int]]:
    """The cells, and how many supernets were alive whenever one was opened."""
    opened: list[weakref.ref[object]] = []
    alive: list[int] = []
    plain = Bench.open

    def watched(*arguments: object, **named: object) -> Bench:
        alive.append(sum(one() is not None for one in opened))
        bench = plain(*arguments, **named)
        opened.append(weakref.ref(bench.supernet))
        return bench

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(Bench, "open", watched)
        asked = Comparison(budgets=BUDGETS, runs=(LONG, SHORT, RULE, OTHER))
        return compare([], tmp_path_factory.mktemp("found") / "compare", asked), alive


def trials(place: Path, run: str) -> pd.DataFrame:
    return pd.read_csv(place / run / "trials.csv")


def cell(cells: list[ComparisonRow], run: str, budget: float, limit: str) -> ComparisonRow:
    (one,) = [c for c in cells if (c.strategy, c.budget, c.limit) == (Path(run).name, budget, limit)]
    return one


@pytest.mark.parametrize("run", [LONG, SHORT, RULE, OTHER])
@pytest.mark.parametrize("limit", ["evaluations", "passes"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_run_chooses_by_its_own_scores_among_its_first_trials(
    place: Path, found: tuple[list[ComparisonRow], list[int]], run: str, limit: str, budget: float
) -> None:
    table = trials(place, run)
    tables = [trials(place, one) for one in (LONG, SHORT, OTHER)]
    controls = [pd.read_csv(place / one / "controls.csv") for one in (LONG, SHORT, OTHER)]
    tables += [one[one["strategy"] == "random"] for one in controls]
    count, least = min(map(len, tables)), min(one["macs"].sum() for one in tables)
    assert count < 10 < len(tables[0])
    assert least < 0.5 * tables[0]["macs"].sum()
    fits = {"evaluations": table.index < count, "passes": table["macs"].cumsum() <= least * (1 + 1e-9)}[limit]
    first = table[fits]
    own = cell(found[0], run, budget, limit)
    assert own.evaluations == len(first)
    assert own.passes == pytest.approx(first["macs"].sum() / table["macs"][0])
    within = first[first["macs_share"] <= budget].sort_values(["score", "macs"], ascending=[False, True])
    assert own.seeds == min(1, len(within))
    if own.seeds:
        best = within.iloc[0]
        assert json.loads(own.subnets) == [json.loads(best["subnet"])]
        assert (own.share, own.macs) == pytest.approx((best["macs_share"], best["macs"]))


def test_scores_are_those_that_the_run_recorded_on_rows_that_chose_nothing(
    place: Path, found: tuple[list[ComparisonRow], list[int]]
) -> None:
    front = pd.concat([pd.read_csv(place / run / "frontier.csv") for run in (SHORT, OTHER)])
    known = dict(zip(front["subnet"].map(Subnet.from_json), front["held_out_score"], strict=True))
    scored = [one for one in found[0] if one.strategy in ("short", "small-evolve") and one.seeds]
    assert scored
    for one in scored:
        (subnet,) = json.loads(one.subnets)
        if (own := Subnet.from_json(json.dumps(subnet))) in known:
            assert one.score == pytest.approx(known[own])
            assert (one.chosen_on, one.split) == ("search", "report")
    gained = cell(found[0], LONG, 0.8, "evaluations")
    control = cell(found[0], f"{LONG}, random", 0.8, "evaluations")
    assert gained.gain == pytest.approx(gained.score - control.score)


def test_one_supernet_is_open_at_a_time(found: tuple[list[ComparisonRow], list[int]]) -> None:
    assert found[1] == [0, 0, 0, 0]  # each once to read its runs, once to score


def test_supernets_of_other_costs_are_drawn_against_macs(
    found: tuple[list[ComparisonRow], list[int]],
) -> None:
    table = pd.DataFrame(map(vars, found[0]))
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


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ((LONG, f"{LONG}/../tiny-evolve"), "a run is named twice"),
        (("runs/tiny",), "is a model, not a search run"),
    ],
)
def test_what_is_no_comparison(place: Path, ldsearch: Ldsearch, monkeypatch, runs, words) -> None:
    monkeypatch.chdir(place)
    refused = ldsearch("compare", *runs)
    assert refused.code == 2
    assert words in refused.err
    assert refused.err.count("\n") == 1


def test_a_supernet_that_changed_or_went_is_refused(
    wild_place: Path, ldsearch: Ldsearch, tmp_path: Path
) -> None:
    path = wild_place / "runs/tiny/config.json"
    path.write_text(path.read_text().replace('"gelu"', '"relu"'))
    with pytest.raises(RunError, match="searched other weights"):
        compare([], tmp_path / "a", Comparison(runs=(LONG,)))
    shutil.rmtree(wild_place / "runs/tiny")
    refused = ldsearch("compare", LONG)
    assert "the supernet of runs/tiny-evolve is no longer at runs/tiny" in refused.err


def test_the_command_sets_strategies_beside_a_run(
    place: Path, ldsearch: Ldsearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    arguments = ("--strategy", "every-other", "--evaluations", 5, "--seeds", 1, "--budget", "0.8")
    outcome = ldsearch("compare", SHORT, *arguments)
    assert outcome.code == 0, outcome.err
    names = list(dict.fromkeys(pd.read_csv("runs/tiny-short-compare/compare.csv")["strategy"]))
    assert names == ["every-other", "random:depth", "short", "short, random"]
    assert outcome.out.count("tiny: accuracy on") == 2
