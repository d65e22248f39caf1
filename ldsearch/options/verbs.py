"""The verbs and their options, and the command line that gives them."""

import inspect
import shlex
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from ldsearch.disk.secrets import without_tokens
from ldsearch.options.binding import trainer_words
from ldsearch.options.reading import DistillData, Info, Report
from ldsearch.options.search import Compress, Evolve
from ldsearch.options.serving import Compare, Evaluate, Export, Profile
from ldsearch.options.training import TrainSupernet

# Of each verb the options that the module ``ldsearch.commands.<verb>`` is called with.
VERBS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "compress": Compress,
        "train-supernet": TrainSupernet,
        "evolve": Evolve,
        "evaluate": Evaluate,
        "compare": Compare,
        "profile": Profile,
        "export": Export,
        "report": Report,
        "info": Info,
        "distill-data": DistillData,
    }
)


# Options of earlier versions that changed no result.
_GONE: Mapping[str, tuple[str, ...]] = MappingProxyType({"evolve": ("cache",)})


def flags(verb: str, values: Mapping[str, Any]) -> str:
    """The command line that gives these options.

    Args:
        verb: A key of ``VERBS``.
        values: As ``changed`` gives them.
    """
    known = {one.name: one.metadata for one in fields(VERBS[verb])}
    arguments: list[str] = []
    words: list[str] = []
    for name, value in values.items():
        if name in _GONE.get(verb, ()):
            continue  # of an old record
        if name == "trainer":
            words += trainer_words(without_tokens(value))  # of an old record
        elif known[name]["argument"]:
            arguments += map(str, value if isinstance(value, list) else [value])
        elif value is True:
            words.append(flag_of(name))
        elif isinstance(value, list) and known[name]["read"] is None:
            words += [word for part in value for word in (flag_of(name), str(part))]
        elif isinstance(value, Mapping):
            words += [flag_of(name), ",".join(f"{stack}={_text(part)}" for stack, part in value.items())]
        else:
            words += [flag_of(name), _text(value)]
    return shlex.join(["ldsearch", verb, *arguments, *words])


def _text(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def panel_of(options: type[object], name: str) -> str | None:
    """The heading that an option stands under: of the nearest class with one that declares it."""
    owners = [owner for owner in options.__mro__ if name in inspect.get_annotations(owner)]
    return next((vars(owner)["PANEL"] for owner in owners if "PANEL" in vars(owner)), None)


def flag_of(name: str) -> str:
    """The flag of an option."""
    return f"--{name.replace('_', '-')}"
