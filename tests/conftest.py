"""Fixtures for every test: one thread per process, so that two test processes share two cores."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
