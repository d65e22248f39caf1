"""Successive halving: what few rows say decides what gets all of them, and nothing else."""

import zlib

import pytest

from ldsearch.errors import RunError
from ldsearch.search.halving import Halving, HalvingOptions
from ldsearch.search.loop import Evaluate, SearchResult, StrategyContext, search
from ldsearch.subnet import Subnet
from tests.search.scoring import BLOCKS, DEPTHS, measure, number_of_blocks, worth


def planted(rows: float) -> Evaluate:
    """A worth for each block, and an error that falls with the rows, to none on all of them."""

    def score(subnet: Subnet) -> float:
        drawn = zlib.crc32(f"{rows} {subnet.to_json()}".encode()) / 2**32 - 0.5
        return worth(subnet) + 0.3 * (1 / rows - 1) ** 0.5 * drawn

    return measure(score, number_of_blocks)


def halved(evaluations: int, **options: int) -> SearchResult:
    own = HalvingOptions(**options)
    context = StrategyContext(DEPTHS, number_of_blocks, 0, evaluations, options=own)
    how = {"evaluations": evaluations, "patience": None, "on_rows": planted}
    return search(Halving(context), planted(1.0), DEPTHS.full(), **how)


def test_it_finds_what_all_rows_find_of_the_same_candidates_with_a_third_of_the_rows() -> None:
    every, found = halved(442, rungs=1), halved(150)
    assert found.spent <= 150 < every.spent == len(every.trials)
    assert len(found.trials) <= 50
    for most in range(2, BLOCKS):
        best, ours = (
            max((t for t in result.trials if t.costs["macs"] <= most), key=lambda t: t.score.value)
            for result in (every, found)
        )
        assert ours == best


def test_few_evaluations_and_small_spaces_have_fewer_rungs_and_candidates() -> None:
    for evaluations in (2, 3, 4, 9):
        result = halved(evaluations)
        assert len(result.trials) > 1
        assert result.spent <= evaluations
    for wrong in ({"eta": 1}, {"rungs": 0}):
        with pytest.raises(RunError, match="eta from 2 and rungs from 1 on"):
            HalvingOptions(**wrong)
    context = StrategyContext(DEPTHS, number_of_blocks, options=HalvingOptions())
    with pytest.raises(ValueError, match="on all rows"):
        search(Halving(context), planted(1.0), DEPTHS.full())
