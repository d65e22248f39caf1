"""Registries that others can add to: by a call, or by an entry point of their own package."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from ldsearch.errors import LdsearchError

Thing = TypeVar("Thing")


class Registry(Mapping[str, Thing], Generic[Thing]):
    """Things by name, in the order they came.

    An entry point of the group ``ldsearch.<kind>`` is loaded when the registry is first read; its name is
    the thing's name.

    Args:
        kind: What is registered, plural (``"families"``).
        things: Those of this package.
    """

    def __init__(self, kind: str, things: Mapping[str, Thing]) -> None:
        self.kind = kind
        self._shipped = dict(things)

    def register(self, name: str, thing: Thing) -> Thing:
        """Add a thing; returns it.

        Raises:
            LdsearchError: If the name is taken.
        """
        if name in self:
            raise LdsearchError(f"there already is a {name!r} among the {self.kind}")
        self._things[name] = thing
        return thing

    def remove(self, name: str) -> None:
        """Take out what ``register`` added (tests tidy up with it)."""
        if name in self._shipped:
            raise LdsearchError(f"{name!r} is shipped with ldsearch and stays among the {self.kind}")
        del self._things[name]

    @cached_property
    def _things(self) -> dict[str, Thing]:
        things = dict(self._shipped)
        for point in entry_points(group=f"ldsearch.{self.kind}"):
            if point.name in things:
                raise LdsearchError(
                    f"{point.value} registers {point.name!r}, which is already among the {self.kind}"
                )
            things[point.name] = cast(Thing, point.load())
        return things

    def __getitem__(self, name: str) -> Thing:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
