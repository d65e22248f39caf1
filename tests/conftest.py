"""Fixtures for every test: one thread a process, so that two test processes share two cores; fp32."""

import signal
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from ldsearch.commands import trainer


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def one_precision() -> Iterator[None]:
    """Trainings in fp32, whatever the processor is faster in."""
    with mock.patch.object(trainer, "bf16_is_fast", return_value=False):
        yield


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A handler left behind would end a later test's process."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before
