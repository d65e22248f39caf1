"""JSON as our dataclasses: each field is what its annotation says, or the file is damaged."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ldsearch.errors import LdsearchError, RunError, one_line

Record = TypeVar("Record")

_WORDS = MappingProxyType(
    {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
)


def as_record(kind: type[Record], fields: Any, source: str, error: type[LdsearchError] = RunError) -> Record:
    """A dataclass from JSON fields, each of which must be what its annotation says.

    Args:
        kind: The dataclass; fields may be dataclasses, in lists and mappings too.
        fields: What JSON holds.
        source: Where it comes from, for the message.
        error: What is raised where a field is missing, unknown or of another kind.
    """
    try:
        return cast(Record, typed(fields, kind))
    except (ValueError, LdsearchError) as found:
        raise error(f"{source} is damaged: {one_line(found)}") from found


def typed(value: Any, kind: Any, name: str = "it") -> Any:
    """A value of JSON as an annotation has it: lists as tuples, objects as dataclasses.

    A class with ``from_fields`` reads itself.

    Args:
        value: What JSON holds.
        kind: The annotation.
        name: Of the value, for the message.

    Raises:
        ValueError: If it is of another kind.
    """
    if kind is Any:
        return value
    if kind in _WORDS:
        # 1 is a number too; True is none.
        if type(value) is kind or (kind is float and type(value) is int):
            return value
        raise ValueError(f"{name} is {reprlib.repr(value)}, not {_WORDS[kind]}")
    if hasattr(kind, "from_fields"):
        return kind.from_fields(value)
    if is_dataclass(kind):
        return _object(value, kind, name)
    return _GENERIC[get_origin(kind)](value, get_args(kind), name)


def _union(value: Any, kinds: Sequence[Any], name: str) -> Any:
    said: list[str] = []
    for kind in kinds:
        try:
            return typed(value, kind, name)
        except ValueError as error:
            said.append(str(error))
    raise ValueError(said[0])


def _literal(value: Any, allowed: Sequence[Any], name: str) -> Any:
    if isinstance(value, str) and value in allowed:
        return value
    raise ValueError(f"{name} is {reprlib.repr(value)}, not {' or '.join(map(str, allowed))}")


def _list(value: Any, inner: Sequence[Any], name: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is {reprlib.repr(value)}, not a list")
    return [typed(part, inner[0], f"{name}[{index}]") for index, part in enumerate(value)]


def _tuple(value: Any, inner: Sequence[Any], name: str) -> tuple[Any, ...]:
    """A tuple of any length, as all of ours are."""
    return tuple(_list(value, inner, name))


def _mapping(value: Any, inner: Sequence[Any], name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {reprlib.repr(value)}, not an object")
    return {typed(key, inner[0], name): typed(part, inner[1], f"{name}.{key}") for key, part in value.items()}


_GENERIC: Mapping[Any, Callable[[Any, Sequence[Any], str], Any]] = MappingProxyType(
    {
        **dict.fromkeys((Union, UnionType), _union),
        Literal: _literal,
        list: _list,
        tuple: _tuple,
        **dict.fromkeys((dict, Mapping), _mapping),
    }
)


def _object(value: Any, kind: Any, name: str) -> Any:
    given = _mapping(value, (str, Any), name)
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind)}
    if strange := sorted(set(given) - set(known)):
        raise ValueError(f"{name} has an unknown field {strange[0]}")
    for field in known.values():
        if field.default is MISSING and field.default_factory is MISSING and field.name not in given:
            raise ValueError(f"{name} has no {field.name}")
    return kind(**{key: typed(part, hints[key], key) for key, part in given.items()})
