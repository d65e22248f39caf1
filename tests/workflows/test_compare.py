"""Comparisons: every number of a cell from the trials and statistics themselves; empty cells; refusals."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ldsearch.bench import Bench
from ldsearch.commands.compare import compare
from ldsearch.commands.comparison import Comparison, ComparisonRow, StrategyEntry
from ldsearch.errors import BudgetError, RunError, SpaceError
from ldsearch.evaluation import Evaluator
from ldsearch.subnet import Subnet
from tests.cli.conftest import Ldsearch, ldsearch, wild

__all__ = ["ldsearch", "wild"]  # fixtures of the command line's tests
ASKED = Comparison(
    (
        StrategyEntry("surrogate"),
        StrategyEntry("nsga", "depth+lengths"),
        StrategyEntry("every-other"),
        StrategyEntry("swaps"),
    ),
    budgets=(0.1, 0.6, 0.9),
    evaluations=12,
    seeds=2,
)


@pytest.fixture(scope="module")
def found(wild: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, list[ComparisonRow], Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(wild)
        bench = Bench.open("runs/tiny")
        folder = tmp_path_factory.mktemp("compared") / "compare"
        return bench, compare([bench.folder], folder, ASKED), folder


def cell(
    cells: list[ComparisonRow], strategy: str, budget: float, limit: str = "evaluations"
) -> ComparisonRow:
    (one,) = [c for c in cells if (c.strategy, c.budget, c.limit) == (strategy, budget, limit)]
    return one


def test_every_entry_has_a_cell_and_its_control(found) -> None:
    _, cells, folder = found
    names = ["surrogate", "nsga:depth+lengths", "every-other", "swaps"]
    controls = ["random", "random:depth+lengths", "random:depth"]
    assert list(dict.fromkeys(one.strategy for one in cells)) == names + controls
    table = pd.read_csv(folder / "compare.csv")
    assert len(table) == len(cells) == 7 * 3 * 2
    assert (folder / "compare.png").stat().st_size > 10_000


def test_a_cell_is_the_mean_of_what_its_searches_chose(found) -> None:
    bench, cells, _ = found
    for one in cells:
        if not one.seeds:
            continue
        subnets = [Subnet.from_json(json.dumps(fields)) for fields in json.loads(one.subnets)]
        assert len(subnets) == one.seeds
        shares = bench.macs(subnets) / bench.macs([bench.full])
        assert shares.max() <= one.budget
        assert one.share == pytest.approx(shares.mean())
        scores = [bench.held_out.statistics(subnet).mean() for subnet in subnets]
        assert one.score == pytest.approx(np.mean(scores))
        assert one.low <= one.score <= one.high
        assert one.examples == bench.held_out.examples


def test_gains_are_differences_to_random_search_of_the_same_genes(found) -> None:
    _, cells, _ = found
    for strategy, control in (
        ("surrogate", "random"),
        ("nsga:depth+lengths", "random:depth+lengths"),
        ("every-other", "random:depth"),
    ):
        own, other = (cell(cells, name, 0.9) for name in (strategy, control))
        assert own.gain == pytest.approx(own.score - other.score)
        assert own.gain_low <= own.gain <= own.gain_high
        assert math.isnan(other.gain)


def test_below_the_cheapest_a_cell_is_empty(found) -> None:
    _, cells, _ = found
    empty = cell(cells, "surrogate", 0.1)
    assert empty.seeds == 0
    assert math.isnan(empty.score)
    assert empty.subnets == ""


def test_at_equal_cost_nothing_spends_more_than_the_cheapest_search(found) -> None:
    _, cells, _ = found
    searches = [c for c in cells if c.strategy.split(":")[0] in ("surrogate", "nsga", "random")]
    least = min(c.passes for c in searches if c.limit == "evaluations")
    for one in cells:
        if one.limit == "passes":
            assert one.passes <= least + 1e-9
            assert one.evaluations <= cell(cells, one.strategy, one.budget).evaluations
    # Deterministic rules run once, those that draw once for each seed.
    assert cell(cells, "every-other", 0.9).seeds == 1
    assert cell(cells, "swaps", 0.9).seeds == 2


def test_a_second_call_measures_nothing(found) -> None:
    bench, cells, folder = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluator, "_run", lambda _, subnets: pytest.fail("again") if subnets else iter(()))
        repeated = compare([bench.folder], folder, ASKED)
    pd.testing.assert_frame_equal(*(pd.DataFrame(map(vars, rows)) for rows in (cells, repeated)))


@pytest.mark.parametrize("text", ["magic", "every-other:depth", "magic:depth", "surrogate:width"])
def test_unknown_strategies_are_refused(text: str) -> None:
    with pytest.raises((RunError, SpaceError)):
        StrategyEntry.parse(text)


def test_senseless_comparisons_are_refused() -> None:
    with pytest.raises(RunError):
        Comparison(())
    with pytest.raises(BudgetError):
        Comparison((StrategyEntry("random"),), (1.5,))


def test_the_command_prints_both_tables(
    ldsearch: Ldsearch, wild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wild)
    arguments = ("--strategy", "every-other", "--evaluations", 6, "--seeds", 1, "--budget", "0.7")
    outcome = ldsearch("compare", "--supernet", "runs/tiny", *arguments)
    assert outcome.code == 0, outcome.err
    assert "equally many evaluations" in outcome.out
    assert "as much spent" in outcome.out
    refused = ldsearch("compare", "--supernet", "runs/tiny", "--budget", "cheap")
    assert refused.code == 2
    assert "cannot read the budgets 'cheap'" in refused.err
