"""The command line, a place with a finished search, and checks that start no process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ldsearch.commands import export
from ldsearch.export import reader
from ldsearch.export.card import Timed
from ldsearch.export.timing import Timing
from tests.cli.conftest import ldsearch, wild, wild_place

__all__ = ["Here", "in_process", "ldsearch", "wild", "wild_place"]

FASTER = Timed("forward", 1, 10, 1.0, 0.9, 1.1, 2.0, "stock sdpa", 0.5, 0.4, 5, False, "cpu", 1)


class Here:
    """A fresh process that is this one, where what a new one adds does not matter."""

    where = "this process"
    answers = staticmethod(reader.answers)
    asked: Timing

    def __init__(self, scratch: Path, timing: Timing) -> None:
        Here.asked = timing

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def timings(self) -> Iterator[list[Timed]]:
        yield from ([FASTER] for _ in Here.asked.macs_ratios)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "FreshProcess", Here)
