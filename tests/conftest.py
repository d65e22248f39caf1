"""Fixtures for every test: one thread a process, so that two test processes share two cores; fp32."""

import signal
import subprocess
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from matplotlib.figure import Figure

from ldsearch.export import check
from ldsearch.search import run as searches
from ldsearch.training import run as trainer
from tests import fresh


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def one_precision() -> Iterator[None]:
    """Trainings in fp32, whatever the processor is faster in."""
    with mock.patch.object(trainer, "bf16_is_fast", return_value=False):
        yield


@pytest.fixture(autouse=True, scope="session")
def imports_once() -> Iterator[Any]:
    """Exports are read in a process whose imports are made, and timed for an instant; gives what is real."""
    with mock.patch.object(check, "subprocess", fresh.READERS):
        yield subprocess


@pytest.fixture(autouse=True, scope="session")
def drawn() -> Iterator[Any]:
    """A search's figure is empty, since drawing takes longer than a tiny search; gives what draws it."""

    def empty(*_: object, **__: object) -> Figure:
        return Figure(figsize=(1, 1))

    real = searches.draw_frontier
    with mock.patch.object(searches, "draw_frontier", empty):
        yield real


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A handler left behind would end a later test's process."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Of a worker that crashed, say what ended it: pytest-xdist does not."""
    if error:
        print(f"\n{node.gateway.id} ended with {node.gateway._io.popen.wait(timeout=60)}")
