"""Which sub-network the command takes of those that it measured."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ldsearch.compression.compress import _rank
from ldsearch.compression.search import Found, SureInTurn, _RegularUnlessBetter
from ldsearch.errors import BudgetError
from ldsearch.subnet import Subnet
from ldsearch.trials.budget import Budget
from ldsearch.trials.trial import Score, Trial


def trial_of(block: int, macs: float, score: float = 0.5) -> Trial:
    return Trial(Subnet.of_encoder([block]), "m", Score(score), {"macs": macs}, 9, "s", 0.0, "f")


@pytest.mark.parametrize(
    ("budget", "gap", "taken"), [("0.5", -0.01, 2), ("0.5", 0.01, 1), ("0.25", -0.01, 0), ("0.15", -0.01, 3)]
)
def test_within_a_budget_the_best_regular_one_is_taken_unless_another_is_surely_better(
    budget: str, gap: float, taken: int
) -> None:
    # The first, third and last are regular, the last dearer than the third and worse; the second scores best.
    scored = [(2.0, 0.7), (3.0, 0.9), (4.0, 0.8), (1.0, 0.1), (4.5, 0.6)]
    trials = [trial_of(block, *own) for block, own in enumerate(scored)]
    asked: list[tuple[Subnet, Subnet]] = []

    def surely(first: Subnet, second: Subnet) -> float:
        asked.append((first, second))
        return gap if first != second else 0.0

    fields = {name: getattr(Budget.parse(budget), name) for name in Budget.__dataclass_fields__}
    regular = [trials[place].subnet for place in (0, 2, 4)]
    take = _RegularUnlessBetter(**fields, regular=regular, surely=surely)
    assert take.choose(trials, trial_of(9, 10.0, 0.95)) is trials[taken]
    assert take.options == {"budget": budget}
    assert all(second in regular for _, second in asked) or budget == "0.15"


def test_constant_ratios_are_tested_from_the_dearest_down_and_the_last_before_a_failure_is_taken() -> None:
    trials = [trial_of(block, macs) for block, macs in enumerate((2.0, 1.0, 4.0, 3.0))]
    bounds = dict(zip([own.subnet for own in trials], (0.03, 0.001, 0.01, 0.02), strict=True))
    other, full = trial_of(4, 0.5), trial_of(9, 9.0)  # neither was fixed beforehand
    # The cheapest may lose least, which after a failure does not count, but where no other is surer.
    for margin, taken in ((0.04, 1), (0.025, 3), (0.015, 2), (0.005, 1)):
        take = SureInTurn(margin, sequence=[*bounds])
        assert take.choose([*trials, other], full, bounds.__getitem__) is trials[taken]


def test_a_margin_that_was_asked_for_is_refused_where_the_dearest_fails() -> None:
    trials, full = [trial_of(0, 1.0), trial_of(1, 2.0)], trial_of(9, 9.0)
    cheaper, dearer = (trial.subnet for trial in trials)
    take = SureInTurn(0.02, True, [cheaper, dearer], refuses=True)
    # Two hundredths of the full model's 0.5.
    for bound, taken in ((0.02, 1), (0.009, 0)):
        assert take.choose(trials, full, {cheaper: bound, dearer: 0.009}.__getitem__) is trials[taken]
    with pytest.raises(BudgetError, match=r"not even the dearest .* less than 0.0100 .* may lose 0.0150"):
        take.choose(trials, full, {cheaper: 0.0, dearer: 0.015}.__getitem__)


def test_a_margin_is_passed_as_seldom_as_one_test_says() -> None:
    # All lose exactly the margin: whichever counts as within it is a mistake, of which one in twenty may be.
    rng, in_turn, alone = np.random.default_rng(0), 0, 0
    trials = [trial_of(block, 1.0 + block) for block in range(12)]
    take, full = SureInTurn(0.01, sequence=[trial.subnet for trial in trials]), trial_of(99, 99.0)
    for _ in range(1_000):
        gaps = rng.normal(0.01, 0.1, (12, 100))
        ends = dict(zip(take.sequence, gaps.mean(1) + 1.645 * gaps.std(1, ddof=1) / 10, strict=True))
        sure = take.sure(trials, full, ends.__getitem__)
        in_turn += bool(sure)
        alone += any(end < 0.01 for end in ends.values())
        assert take.choose(trials, full, ends.__getitem__) in (sure[-1:] or trials)
    assert in_turn == pytest.approx(50, abs=20)
    assert alone > 400


def test_a_training_is_taken_for_fewer_macs_where_a_margin_is_asked_for_else_for_the_score() -> None:
    def found(sure: bool | None, share: float) -> Found:
        best: Any = SimpleNamespace(costs={"macs": share}, full_costs={"macs": 1.0})
        run: Any = SimpleNamespace(best=best)
        return Found(run, "", sure)

    for trained, plain, better, taken in (
        (found(True, 0.2), found(True, 0.4), -0.01, True),
        (found(True, 0.5), found(True, 0.4), 0.01, False),
        (found(True, 0.4), found(True, 0.4), 0.01, True),
        (found(True, 0.8), found(False, 0.4), -0.01, True),
        (found(False, 0.2), found(True, 0.4), 0.01, False),
        (found(False, 0.2), found(False, 0.4), -0.01, False),
        (found(None, 0.2), found(None, 0.4), -0.01, False),
        (found(None, 0.4), found(None, 0.2), 0.01, True),
        (found(None, 0.4), found(False, 0.2), -0.01, True),  # which alone meets a budget in time
        (found(False, 0.2), found(None, 0.4), 0.01, False),
    ):
        assert (_rank(trained, better) > _rank(plain, 0.0)) is taken
