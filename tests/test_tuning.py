"""What is varied, read from text; and that what is tried next nears an optimum and needs no memory."""

import math
from statistics import median

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from ldsearch.errors import TrainingError
from ldsearch.tuning import ends, next_parameters, parse_values


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("1e-5:2e-4:log", float, FloatDistribution(1e-5, 2e-4, log=True)),
        ("0.2:0.5", float, FloatDistribution(0.2, 0.5)),
        ("1:5", float, FloatDistribution(1.0, 5.0)),
        ("1:5", int, IntDistribution(1, 5)),
        ("8:64:log", int, IntDistribution(8, 64, log=True)),
        ("0,0.1, 0.2", float, CategoricalDistribution((0.0, 0.1, 0.2))),
        ("linear,cosine", str, CategoricalDistribution(("linear", "cosine"))),
        ("C:/a,C:/b", str, CategoricalDistribution(("C:/a", "C:/b"))),
    ],
)
def test_values_are_read(text, kind, expected):
    assert parse_values("x", text, kind) == expected


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", float, "'' is not a number"),
        ("0.1", float, "two and more different values"),
        ("0.1,0.10", float, "two and more different values"),
        ("a,,b", str, "two and more different values"),
        ("0.3:0.3", float, "low below high"),
        ("0.5:0.2", float, "low below high"),
        ("0.1:0.2:lin", float, "low:high:log"),
        ("0.1:0.2:log:log", float, "low:high:log"),
        ("0:1:log", float, "starts above 0"),
        (":1", float, "'' is not a number"),
        ("0:inf", float, "not finite"),
        ("nan,1", float, "not finite"),
        ("0.5:2", int, "'0.5' is not a whole number"),
    ],
)
def test_what_leaves_nothing_to_choose_is_refused_in_one_line(text, kind, words):
    with pytest.raises(TrainingError) as caught:
        parse_values("x", text, kind)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_both_ends_of_a_range_and_all_choices_stand_for_the_rest():
    assert ends(FloatDistribution(0.2, 0.5)) == (0.2, 0.5)
    assert ends(CategoricalDistribution(("a", "b", "c"))) == ("a", "b", "c")


DISTRIBUTIONS = {"rate": FloatDistribution(1e-5, 1e-1, log=True), "kind": CategoricalDistribution(("a", "b"))}


def misses(seed: int, count: int) -> list[float]:
    """Decades between what is tried and a planted optimum at 1e-3; every seventh training fails."""
    trials, found = [], []
    for number in range(count):
        parameters = next_parameters(DISTRIBUTIONS, seed, trials)
        assert parameters == next_parameters(DISTRIBUTIONS, seed, trials)
        found.append(abs(math.log10(parameters["rate"]) + 3))
        failed = number % 7 == 6
        trials.append(
            create_trial(
                state=TrialState.FAIL if failed else TrialState.COMPLETE,
                value=None if failed else -found[-1] - (parameters["kind"] == "a"),
                params=parameters,
                distributions=DISTRIBUTIONS,
            )
        )
    return found


def test_what_is_tried_nears_a_planted_optimum_and_depends_on_the_seed():
    found = misses(0, 40)
    # At random, in the four decades around it, half of them would miss by a decade or more.
    assert median(found[20:]) < 0.6
    assert len(set(found)) == 40
    assert found[:3] != misses(1, 3)


def test_the_first_draw_is_inside_its_range_for_many_seeds_and_not_always_the_same():
    drawn = [next_parameters(DISTRIBUTIONS, seed, []) for seed in range(20)]
    assert all(1e-5 <= one["rate"] <= 1e-1 for one in drawn)
    assert {one["kind"] for one in drawn} == {"a", "b"}
    assert len({one["rate"] for one in drawn}) == 20


def test_nothing_is_said_of_the_studies_in_memory(caplog):
    next_parameters(DISTRIBUTIONS, 0, [])
    assert not caplog.records
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING
