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


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("12ms@batch=8,length=128", 12.0),
        ("0.5s@batch=8,length=128", 500.0),
        ("900us@batch=8,length=128", 0.9),
    ],
)
def test_latencies_are_milliseconds_of_a_batch(text, limit):
    budget = Budget.parse(text)
    assert (budget.cost, budget.is_share, budget.batch, budget.length) == ("latency", False, 8, 128)
    assert budget.absolute({"latency": 99.0}) == pytest.approx(limit)


@pytest.mark.parametrize(
    "text", ["12ms", "12ms@batch=8", "12ms@length=8,batch=8", "12ms@batch=0,length=8", "1s@batch=8,length=x"]
)
def test_a_latency_without_its_batch_and_length_is_refused(text):
    with pytest.raises(BudgetError, match="needs its batch and length"):
        Budget.parse(text)


def test_an_unreachable_budget_names_the_cheapest():
    cheapest = {"macs": 3e9, "parameters": 1e8}
    Budget.parse("0.375").check_reachable(cheapest, FULL, "the small one")
    with pytest.raises(BudgetError, match=r"the small one\) costs 0\.3750"):
        Budget.parse("0.37").check_reachable(cheapest, FULL, "the small one")
