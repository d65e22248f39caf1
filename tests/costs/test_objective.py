"""What a search minimises, as it is written."""

import pytest

from ldsearch.costs.budget import Budget
from ldsearch.costs.named import COSTS
from ldsearch.costs.objective import Objective
from ldsearch.errors import LdsearchError

MILLISECONDS = Budget.parse("12ms@batch=1,length=64")


@pytest.mark.parametrize(
    ("text", "budget", "expected"),
    [
        ("score", None, Objective()),
        ("kl", Budget.parse("0.4"), Objective("kl")),
        ("latency@batch=8,length=128", None, Objective("score", ("latency",), (8, 128))),
        ("latency", MILLISECONDS, Objective("score", ("latency",), (1, 64))),
        ("score", MILLISECONDS, Objective("score", ("latency",), (1, 64))),
        # The budget still has to be known of what was searched by MACs.
        ("macs", MILLISECONDS, Objective("score", ("macs",), (1, 64))),
        ("kl+macs+latency", MILLISECONDS, Objective("kl", ("macs", "latency"), (1, 64))),
        (" parameters + kl ", None, Objective("kl", ("parameters",))),
    ],
)
def test_what_is_not_said_follows_from_the_budget(text: str, budget: Budget | None, expected: Objective):
    assert Objective.parse(text, budget) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed", "unknown objective 'speed': use one of score, kl, macs, parameters, latency"),
        ("", "unknown objective ''"),
        ("kl+score", "names one thing twice"),
        ("macs+macs", "names one thing twice"),
        ("latency", "needs its batch and length: latency@batch=8,length=128"),
        ("latency@batch=8", "needs its batch and length"),
        ("latency@batch=0,length=8", "needs its batch and length"),
        ("macs@batch=1,length=8", "only a latency has batch and length"),
        ("padded_macs", "unknown objective"),
    ],
)
def test_what_nothing_is_searched_by_is_refused(text: str, words: str):
    with pytest.raises(LdsearchError, match=words):
        Objective.parse(text)


def test_two_workloads_are_refused():
    with pytest.raises(LdsearchError, match="other batches"):
        Objective.parse("latency@batch=8,length=64", MILLISECONDS)
    assert Objective.parse("latency@batch=1,length=64", MILLISECONDS).cell == (1, 64)


def test_only_what_is_unusual_names_a_run():
    assert Objective().words == []
    assert Objective.parse("kl+latency", MILLISECONDS).words == ["kl", "latency"]
    assert Objective().identity == {}
    assert Objective.parse("latency", MILLISECONDS).identity == {"costs": ["latency"], "cell": [1, 64]}


def test_a_registered_cost_is_an_objective_and_a_unit():
    COSTS.register("joules", lambda supernet, workload: None)
    try:
        assert Objective.parse("joules").costs == ("joules",)
        budget = Budget.parse("3kjoules")
        assert (budget.cost, budget.limit, budget.is_share) == ("joules", 3000.0, False)
    finally:
        COSTS.remove("joules")
    with pytest.raises(LdsearchError, match="unknown unit"):
        Budget.parse("3kjoules")
