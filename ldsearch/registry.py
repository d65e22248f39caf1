"""Registries that others can add to: by a call, or by an entry point of their own package."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from ldsearch.errors import LdsearchError, one_line

Thing = TypeVar("Thing")


class Registry(Mapping[str, Thing], Generic[Thing]):
    """Things by name, in the order they came.

    An entry point of the group ``ldsearch.<kind>`` is loaded when the registry is first read; its name is
    the thing's name.

    Args:
        kind: What is registered, plural (``"families"``).
        things: Those of this package.
        of: The class that each is an instance of; None: they are of no one class.
    """

    def __init__(self, kind: str, things: Mapping[str, Thing], of: type | None = None) -> None:
        self.kind = kind
        self._shipped = dict(things)
        self._of = of

    def register(self, name: str, thing: Thing) -> Thing:
        """Add a thing; returns it.

        Raises:
            LdsearchError: If the name is taken, or the thing is of another class.
        """
        if name in self:
            raise LdsearchError(f"there already is a {name!r} among the {self.kind}")
        self._check(name, thing)
        self._things[name] = thing
        return thing

    def _check(self, name: str, thing: object) -> None:
        if self._of is not None and not isinstance(thing, self._of):
            raise LdsearchError(f"{name!r} of the {self.kind} is {thing!r}, which is no {self._of.__name__}")

    def remove(self, name: str) -> None:
        """Take out what ``register`` added (tests tidy up with it)."""
        if name in self._shipped:
            raise LdsearchError(f"{name!r} is shipped with ldsearch and stays among the {self.kind}")
        del self._things[name]

    @cached_property
    def _things(self) -> dict[str, Thing]:
        # Kept at once: a module that is loaded here may register by itself.
        things = self.__dict__["_things"] = dict(self._shipped)
        try:
            for point in entry_points(group=f"ldsearch.{self.kind}"):
                if point.name in things:
                    raise LdsearchError(
                        f"{point.value} registers {point.name!r}, which is already among the {self.kind}"
                    )
                try:
                    thing = cast(Thing, point.load())
                except Exception as error:  # whatever another package's module raises
                    raise LdsearchError(
                        f"the entry point {point.name} = {point.value} of ldsearch.{self.kind} cannot be "
                        f"loaded: {one_line(error)}"
                    ) from error
                self._check(point.name, thing)
                if things.setdefault(point.name, thing) is not thing:
                    raise LdsearchError(f"{point.value} registers {point.name!r} twice, as different things")
        except LdsearchError:
            del self.__dict__["_things"]  # or the next reader would find a part of them
            raise
        return things

    def __getitem__(self, name: str) -> Thing:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
