"""What ``ldsearch tune`` may vary: fields of ``TrainOptions`` and arguments of the Trainer, of which type."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import get_args, get_type_hints

from optuna.distributions import BaseDistribution
from transformers import TrainingArguments

from ldsearch.commands.train_options import TrainOptions
from ldsearch.errors import TrainingError
from ldsearch.length_drop import as_rate
from ldsearch.tuning import Value, ends, parse_values

# Not the data, the model, the metric or the inputs' length: areas of these cannot be compared.
FIELDS: Mapping[str, type[Value]] = MappingProxyType(
    {
        "strategy": str,
        "drop_bound": float,
        "layer_drop": float,
        "layer_drop_schedule": str,
        "target_layers": int,
        "min_layers": int,
        "drop_groups": str,
        "sandwich": str,
        "plain_share": float,
        "teacher": str,
        "average_last": int,
    }
)
_SEEDS = ("seed", "data_seed")


def kind_of(name: str) -> type[Value]:
    """Whether a hyperparameter is a number, a whole number or a text.

    Raises:
        TrainingError: If it is none, or a seed.
    """
    if name in _SEEDS:
        raise TrainingError(f"--vary {name}: the best of several seeds would be luck")
    if name in FIELDS:
        return FIELDS[name]
    hint = get_type_hints(TrainingArguments).get(name)
    if hint is None:
        raise TrainingError(
            f"--vary {name}: use one of {', '.join(FIELDS)}, or an argument of the Trainer such as "
            "learning_rate"
        )
    found = {hint, *get_args(hint)}
    return float if float in found else int if int in found else str


def parse_variations(texts: Sequence[str]) -> dict[str, BaseDistribution]:
    """Distributions by name, from ``name=low:high[:log]`` and ``name=a,b,c``.

    Raises:
        TrainingError: If there is none, or one cannot be read, or a name comes twice.
    """
    found: dict[str, BaseDistribution] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name in found:
            raise TrainingError(f"--vary {name} is given twice")
        found[name] = parse_values(name, values, kind_of(name))
    if not found:
        raise TrainingError("nothing to vary: give --vary, such as --vary learning_rate=1e-5:2e-4:log")
    if "drop_bound" in found:
        for bound in ends(found["drop_bound"]):
            as_rate(bound)
    return found


def varied(options: TrainOptions, parameters: Mapping[str, Value]) -> TrainOptions:
    """The options with these values; of what was said twice the last holds.

    Args:
        options: What is not varied.
        parameters: By names that ``kind_of`` knows.
    """
    own: dict[str, object] = {name: value for name, value in parameters.items() if name in FIELDS}
    if "layer_drop" in own:
        own["layer_drop"] = (own["layer_drop"],)
    flags = words_of({name: value for name, value in parameters.items() if name not in FIELDS})
    return replace(options, **own, trainer=(*options.trainer, *flags))  # type: ignore[arg-type]


def words_of(parameters: Mapping[str, Value]) -> list[str]:
    """The same values as ``ldsearch train-supernet`` takes them."""
    words = []
    for name, value in parameters.items():
        words += [f"--{name.replace('_', '-') if name in FIELDS else name}", str(value)]
    return words
