"""Budgets as users write them."""

import pytest

from ldsearch.costs.budget import Budget
from ldsearch.errors import BudgetError

FULL = {"macs": 8e9, "parameters": 1e8}


@pytest.mark.parametrize(
    ("text", "cost", "limit"),
    [
        ("0.4", "macs", 3.2e9),
        ("1", "macs", 8e9),
        (" .5 ", "macs", 4e9),
        ("4e-1", "macs", 3.2e9),
        ("2.1GMACs", "macs", 2.1e9),
        ("2100 mmacs", "macs", 2.1e9),
        ("60Mparams", "parameters", 6e7),
        ("5000params", "parameters", 5e3),
    ],
)
def test_budgets_are_read_in_their_unit(text, cost, limit):
    budget = Budget.parse(text)
    assert budget.cost == cost
    assert budget.absolute(FULL) == pytest.approx(limit)


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "1.5", "nan", "inf", "12 bananas", "", "e", "1e", "0.4@batch=8", "--", "12xparams", "0x4"],
)
def test_senseless_budgets_are_refused_in_one_line_that_says_what_to_write(text):
    with pytest.raises(BudgetError, match=r"0\.4") as refused:
        Budget.parse(text)
    assert "\n" not in str(refused.value)


def test_latency_budgets_say_that_they_are_not_there_yet():
    with pytest.raises(BudgetError, match="latency budgets"):
        Budget.parse("12ms@batch=8,length=128")


def test_an_unreachable_budget_names_the_cheapest():
    cheapest = {"macs": 3e9, "parameters": 1e8}
    Budget.parse("0.375").check_reachable(cheapest, FULL, "the small one")
    with pytest.raises(BudgetError, match=r"the small one\) costs 0\.3750"):
        Budget.parse("0.37").check_reachable(cheapest, FULL, "the small one")
