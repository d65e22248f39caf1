"""Goals: what a search minimises, which measured sub-network is taken, and the text form of both."""

import dataclasses
import math
import random

import numpy as np
import pytest

from ldsearch.costs.named import COSTS
from ldsearch.errors import BudgetError, LdsearchError
from ldsearch.subnet import Subnet
from ldsearch.trials.budget import Budget, TimeBudget
from ldsearch.trials.goal import AtLeast, Goal, MostAccurate, NoWorse, read_least
from ldsearch.trials.intervals import paired_bootstrap
from ldsearch.trials.trial import Score, Trial


def trial(block: int, score: float, higher: bool = True, **costs: float) -> Trial:
    return Trial(Subnet.of_encoder([block]), "m", Score(score, higher), costs, 1, "s", 0.0, "f")


def refusal(take: Budget | AtLeast | MostAccurate, candidates: list[Trial], full: Trial) -> str:
    with pytest.raises(BudgetError) as caught:
        take.choose(candidates, full)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FULL = trial(9, 0.8, macs=10.0, parameters=7.0)
# Score and MACs: ties in the score at 0.7 and at 0.8, the dearer of each first.
ROWS = [(0.9, 9.0), (0.7, 4.0), (0.7, 3.0), (0.6, 1.0), (math.nan, 0.5), (0.8, 8.0), (0.8, 6.0)]
TRIALS = [trial(i, score, macs=macs, parameters=7.0) for i, (score, macs) in enumerate(ROWS)]


@pytest.mark.parametrize(("cost", "share"), [("0.05", "0.100"), ("6params", "1.000")])
def test_a_budget_that_nothing_meets_names_the_cheapest_that_has_a_score(cost, share):
    message = refusal(Budget.parse(cost), TRIALS, FULL)
    assert f"none of the 7 measured sub-networks meets the budget {cost}" in message
    assert f"the cheapest costs {share} of the full model" in message


@pytest.mark.parametrize("take", [Budget.parse("1"), AtLeast(None), AtLeast(0.0), MostAccurate()])
def test_trials_without_a_score_are_never_chosen_and_nothing_to_choose_is_one_line(take):
    assert refusal(take, [TRIALS[4]], FULL)
    assert refusal(take, [], FULL)
    assert refusal(take, [TRIALS[4]], trial(9, math.nan, macs=10.0, parameters=7.0))


def test_of_a_metric_where_less_is_better_at_least_means_no_more_than():
    scores = [(3.0, 2.0), (2.0, 4.0), (1.0, 8.0), (math.nan, 1.0)]
    trials = [trial(i, score, False, macs=macs) for i, (score, macs) in enumerate(scores)]
    full = trial(9, 2.5, False, macs=10.0)
    assert AtLeast(None).choose(trials, full) is trials[1]
    assert AtLeast(1.5).choose(trials, full) is trials[2]
    assert AtLeast(3.0).choose(trials, full) is trials[0]
    assert MostAccurate().choose(trials, full) is trials[2]
    assert Budget.parse("0.5").choose(trials, full) is trials[1]
    assert "the best has 1.0000 at 0.800 of the MACs" in refusal(AtLeast(0.5), trials, full)


def test_a_score_that_nothing_reaches_names_the_best_there_is():
    for value, says in ((0.95, "at least 0.95 (0.9500)"), (None, "at least full (0.9900)")):
        message = refusal(AtLeast(value), TRIALS, trial(9, 0.99, macs=10.0))
        assert f"none of the 7 measured sub-networks has m {says}" in message
        assert "the best has 0.9000 at 0.900 of the MACs" in message


def best_of(rows: list[tuple[float, int]]) -> tuple[float, int]:
    return max(rows, key=lambda row: (row[0], -row[1]))


def test_the_choices_agree_with_brute_force_on_random_trials():
    draw = random.Random(0)
    for _ in range(200):
        rows = [(draw.randint(0, 5) / 5, draw.randint(1, 20)) for _ in range(8)]
        trials = [trial(i, score, macs=float(macs), parameters=7.0) for i, (score, macs) in enumerate(rows)]
        trials.insert(draw.randint(0, 8), trial(8, math.nan, macs=0.5, parameters=1.0))
        least = draw.choice((0.4, 0.6))
        full = trial(9, least, macs=20.0, parameters=7.0)
        limit = draw.randint(1, 20)
        expected = {MostAccurate(): best_of(rows), Budget.parse("7params"): best_of(rows)}
        if paid := [row for row in rows if row[1] <= limit]:
            expected |= dict.fromkeys(map(Budget.parse, (f"{limit}MACs", f"{limit / 20}")), best_of(paid))
        if enough := [row for row in rows if row[0] >= least]:
            cheapest = min(enough, key=lambda row: (row[1], -row[0]))
            expected |= {AtLeast(None): cheapest, AtLeast(least): cheapest}
        for take, row in expected.items():
            found = take.choose(trials, full)
            assert (found.score.value, found.costs["macs"]) == row, take


def test_no_worse_is_the_cheapest_whose_bound_lies_below_the_margin():
    bounds = dict(zip([own.subnet for own in TRIALS], (0.01, 0.3, 0.02, 0.04, 0.0, 0.0, -0.1), strict=True))
    for text, index in (("full-0.05", 3), ("full-0.03", 2), ("full-4%", 2), ("full-0.005", 6)):
        assert read_least(text).choose(TRIALS, FULL, bounds.__getitem__) is TRIALS[index], text
    assert NoWorse(1e-6).choose([TRIALS[1], FULL], FULL, bounds.__getitem__) is FULL
    with pytest.raises(BudgetError, match=r"may lose 0\.3000"):
        NoWorse(0.1).choose([TRIALS[1]], FULL, bounds.__getitem__)
    with pytest.raises(BudgetError, match="ldsearch evolve"):
        NoWorse(0.1).choose(TRIALS, FULL)


def test_a_choice_by_evidence_loses_less_than_its_margin_where_a_score_alone_is_lucky():
    """Sixty sub-networks three to five points below the full model, measured on 300 rows, ten times."""
    truth = np.append(0.9 - np.linspace(0.05, 0.03, 60), 0.9)
    losses: dict[str, list[float]] = {"score": [], "evidence": []}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        # Half of the answers are right or wrong together, as those of one supernet's sub-networks are.
        alone = rng.random((61, 300))
        rows = (np.where(rng.random((61, 300)) < 0.5, rng.random(300), alone) < truth[:, None]).astype(float)
        trials = [trial(i, float(row.mean()), macs=1.0 + i) for i, row in enumerate(rows)]
        bounds = {
            own.subnet: paired_bootstrap(rows[-1], row, level=0.9, resamples=500).high
            for own, row in zip(trials, rows, strict=True)
        }
        for name, take in (("score", AtLeast(None)), ("evidence", NoWorse(0.02))):
            chosen = take.choose(trials, trials[-1], bounds.__getitem__)
            losses[name].append(0.9 - truth[trials.index(chosen)])
    assert sum(loss > 0.02 for loss in losses["score"]) >= 5
    assert sum(loss > 0.02 for loss in losses["evidence"]) <= 1


def test_a_latency_that_nobody_knows_chooses_nothing():
    budget = Budget.parse("12ms@batch=8,length=128")
    timed = dataclasses.replace(FULL, costs={**FULL.costs, "latency": 9.0})
    for candidates, full in (([FULL], FULL), ([timed, FULL], timed)):
        with pytest.raises(BudgetError, match="the latency of these sub-networks is not known"):
            budget.choose(candidates, full)
    assert budget.choose([timed], timed) is timed


FULL_COSTS = {"macs": 8e9, "parameters": 1e8, "latency": 6.0}


@pytest.mark.parametrize(
    ("text", "cost", "limit"),
    [
        ("1", "macs", 8e9),
        (" .5 ", "macs", 4e9),
        ("4e-1", "macs", 3.2e9),
        ("2.1GMACs", "macs", 2.1e9),
        ("2100 mmacs", "macs", 2.1e9),
        ("60Mparams", "parameters", 6e7),
        ("5000params", "parameters", 5e3),
        ("2x@batch=8,length=9", "latency", 3.0),
        ("1.5 X@batch=8,length=9", "latency", 4.0),
        ("12ms@batch=8,length=9", "latency", 12.0),
        ("0.5s@batch=8,length=9", "latency", 500.0),
        ("900us@batch=8,length=9", "latency", 0.9),
    ],
)
def test_budgets_are_read_in_their_unit(text, cost, limit):
    budget = Budget.parse(text)
    assert budget.cost == cost
    assert cost != "latency" or budget.cell == (8, 9)
    assert budget.absolute(FULL_COSTS) == pytest.approx(limit)


def test_a_time_that_names_no_cell_takes_the_one_it_is_given_and_is_read_again_from_what_is_kept():
    cells = {"2x": (8, 128), "2x@batch=20": (20, 128), "2x@length=9": (8, 9), "3ms@batch=1": (1, 128)}
    for text, (batch, length) in cells.items():
        goal = Goal.parse(budget=text, cell=(8, 128))
        assert goal.cell == (batch, length)
        assert goal.take.source == f"{text.partition('@')[0]}@batch={batch},length={length}"
        assert Goal.parse(**goal.options) == goal
    with pytest.raises(BudgetError, match="needs its batch and length"):
        Goal.parse(budget="2x@batch=", cell=(8, 128))


CELL = "@batch=1,length=64"
MILLISECONDS = f"12ms{CELL}"
IN_TIME = TimeBudget("latency", 12.0, False, MILLISECONDS, (1, 64))
GOALS = [
    ({}, Goal()),
    ({"most_accurate": True}, Goal()),
    ({"objective": "kl", "budget": "0.4"}, Goal("kl", take=Budget("macs", 0.4, True, "0.4"))),
    ({"at_least": "-1.5"}, Goal(take=AtLeast(-1.5))),
    *(({"at_least": text}, Goal(take=AtLeast(None))) for text in ("full", "Full", " FULL ")),
    ({"at_least": "full-0.005"}, Goal(take=NoWorse(0.005))),
    ({"at_least": "full-0.5%"}, Goal(take=NoWorse(0.005, is_share=True))),
    ({"objective": f"latency{CELL}"}, Goal("score", ("latency",), (1, 64))),
    ({"objective": " parameters + kl "}, Goal("kl", ("parameters",))),
    # What is not said follows from the budget.
    ({"budget": MILLISECONDS}, Goal("score", ("latency",), (1, 64), IN_TIME)),
    ({"objective": f"latency{CELL}", "budget": MILLISECONDS}, Goal("score", ("latency",), (1, 64), IN_TIME)),
    # The budget still has to be known of what was searched by MACs.
    ({"objective": "macs", "budget": MILLISECONDS}, Goal("score", ("macs",), (1, 64), IN_TIME)),
    (
        {"objective": "kl+macs+latency", "budget": MILLISECONDS},
        Goal("kl", ("macs", "latency"), (1, 64), IN_TIME),
    ),
]


@pytest.mark.parametrize(("options", "goal"), GOALS)
def test_a_goal_is_read_from_its_options_and_its_own_options_read_back(options, goal):
    assert Goal.parse(**options) == goal
    assert Goal.parse(**goal.options) == goal


def options(name: str, *texts: str) -> list[dict[str, str]]:
    return [{name: text} for text in texts]


REFUSED = {
    "^--budget and --at-least ask for different": [{"budget": "0.4", "at_least": "0.9"}],
    "^--at-least and --most-accurate ask": [{"at_least": "full", "most_accurate": True}],
    r"^cannot read --at-least .*full-0\.005": [
        *options("at_least", "", "good", "0,9", "90%", "nan", "inf", "-inf", "1e999", "0.9\nmore"),
        *options("at_least", "full-", "full-0", "full--1", "full-x", "full-nan", "full-1.2.3"),
    ],
    r"share of the full model's MACs \(0\.4\)": [
        *options("budget", "0", "-1", "1.5", "nan", "inf", "12 bananas", "", "e", "1e", "0.4@batch=8", "--"),
        *options("budget", "12xparams", "0x4", f"0.5x{CELL}", f"0x{CELL}"),
    ],
    "needs its batch and length": [
        *options("budget", "12ms", "12ms@batch=8", "12ms@length=8,batch=8", "12ms@batch=0,length=8"),
        *options("budget", "1s@batch=8,length=x", "2x", "2x@batch=8"),
        *options("objective", "latency", "latency@batch=8", "latency@batch=0,length=8"),
    ],
    "unknown objective": options("objective", "speed", "", "padded_macs"),
    "names one thing twice": options("objective", "kl+score", "macs+macs"),
    "only a latency has batch and length": options("objective", f"macs{CELL}"),
    "other batches": [{"objective": "latency@batch=8,length=64", "budget": MILLISECONDS}],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_makes_no_goal_is_refused_in_one_line(words):
    for options in REFUSED[words]:
        with pytest.raises(LdsearchError, match=words) as refused:
            Goal.parse(**options)
        assert "\n" not in str(refused.value), options


def test_an_unreachable_budget_names_the_cheapest():
    cheapest = {"macs": 3e9, "parameters": 1e8}
    Budget.parse("0.375").check_reachable(cheapest, FULL_COSTS, "the small one")
    with pytest.raises(BudgetError, match=r"the small one\) costs 0\.3750"):
        Budget.parse("0.37").check_reachable(cheapest, FULL_COSTS, "the small one")
    # Predicted milliseconds may say that the full model is the faster one, and it meets a speed-up of 1.
    Budget.parse(f"1x{CELL}").check_reachable({"latency": 1.2}, {"latency": 1.0}, "the small one")
    with pytest.raises(BudgetError, match=r"costs 1\.2000"):
        Budget.parse(f"2x{CELL}").check_reachable({"latency": 1.2}, {"latency": 1.0}, "the small one")


def test_only_what_is_unusual_names_a_run():
    assert Goal().name_parts == []
    assert Goal.parse("kl+latency", MILLISECONDS).name_parts == ["kl", "latency"]
    assert Goal().identity == {}
    assert Goal.parse("latency", MILLISECONDS).identity == {"costs": ["latency"], "cell": [1, 64]}


@pytest.mark.parametrize("name", ["joules", "peakMB", "peak_mb2", "energy"])
def test_a_registered_cost_is_an_objective_and_a_unit(name):
    COSTS.register(name, lambda supernet, workload: None)
    try:
        assert Goal.parse(name).costs == (name,)
        budget = Budget.parse(f"3k{name}")
        assert (budget.cost, budget.limit, budget.is_share) == (name, 3000.0, False)
        assert Budget.parse(f"3{name}").limit == Budget.parse(f"3e0{name}").limit == 3.0
        with pytest.raises(BudgetError, match=rf"\(0\.0625 {name}\)"):
            Budget.parse(f"0.01 {name}").check_reachable({name: 0.0625}, {name: 0.5}, "the small one")
        with pytest.raises(BudgetError, match=f", or {name}$"):
            Budget.parse("3bananas")
    finally:
        COSTS.remove(name)
    with pytest.raises(LdsearchError, match="unknown unit"):
        Budget.parse(f"3k{name}")
