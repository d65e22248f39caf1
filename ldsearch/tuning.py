"""What a study of trainings varies, and which values it tries next: functions of text, seed and results."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial

from ldsearch.errors import TrainingError

Value = float | int | str


def parse_values(name: str, text: str, kind: type[Value]) -> BaseDistribution:
    """The values of a hyperparameter: ``low:high``, ``low:high:log``, or two and more with commas.

    Args:
        name: What is varied, for the error.
        text: As it is written on a command line.
        kind: ``float``, ``int`` or ``str``; texts have no ranges.

    Raises:
        TrainingError: If it is neither, or leaves nothing to choose.
    """
    if kind is not str and ":" in text:
        return _range(name, text, kind)
    choices = [_value(name, part.strip(), kind) for part in text.split(",")]
    if "" in choices or len(choices) < 2 or len(set(choices)) < len(choices):
        raise TrainingError(f"--vary {name}={text}: give low:high, or two and more different values")
    return CategoricalDistribution(choices)


def ends(distribution: BaseDistribution) -> tuple[Value, ...]:
    """The values that stand for all: both ends of a range, or every choice."""
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return distribution.low, distribution.high
    assert isinstance(distribution, CategoricalDistribution)
    return tuple(value for value in distribution.choices if isinstance(value, float | int | str))


def next_parameters(
    distributions: Mapping[str, BaseDistribution], seed: int, trials: Sequence[FrozenTrial]
) -> dict[str, Value]:
    """What to try next: the tree-structured Parzen estimator (Bergstra et al. 2011), at random at first.

    A function of its arguments, as the draws are of (seed, number of trials): a study that was interrupted
    goes on as it would have.

    Args:
        distributions: By name.
        seed: Of the study.
        trials: All trials so far, whose values are maximised; failed ones teach nothing.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    (state,) = np.random.SeedSequence([seed, len(trials)]).generate_state(1)
    study = optuna.create_study(direction="maximize", sampler=TPESampler(seed=int(state)))
    study.add_trials(trials)
    return dict(study.ask(dict(distributions)).params)


def _range(name: str, text: str, kind: type[Value]) -> BaseDistribution:
    first, last, *scale = text.split(":")
    low, high = _value(name, first, kind), _value(name, last, kind)
    assert not isinstance(low, str)
    assert not isinstance(high, str)
    if scale not in ([], ["log"]) or not low < high:
        raise TrainingError(f"--vary {name}={text}: a range is low:high or low:high:log, low below high")
    if scale and not low > 0:
        raise TrainingError(f"--vary {name}={text}: a logarithmic range starts above 0")
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=bool(scale))
    return FloatDistribution(low, high, log=bool(scale))


def _value(name: str, text: str, kind: type[Value]) -> Value:
    try:
        value = kind(text)
    except ValueError:
        words = {int: "a whole number", float: "a number"}[kind]
        raise TrainingError(f"--vary {name}: {text!r} is not {words}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise TrainingError(f"--vary {name}: {text!r} is not finite")
    return value
