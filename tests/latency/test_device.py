"""What was measured on: threads that are put back, and a machine that others use."""

import pytest
import torch

from ldsearch.latency.clock import crowding, device_facts, threads


def test_facts_name_the_device_and_the_threads_of_the_moment():
    before = torch.get_num_threads()
    with threads(before + 1):
        facts = device_facts(torch.device("cpu"), torch.float32)
    assert (facts["threads"], facts["dtype"]) == (before + 1, "float32")
    assert facts["versions"]["torch"] == torch.__version__
    with threads(None):
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("load", "processors", "own", "busy"),
    [(1.2, 2, 1, True), (0.9, 2, 1, False), (0.4, 2, 2, False), (0.6, 2, 2, True), (None, 2, 2, False)],
)
def test_a_load_that_leaves_too_few_processors_is_said(load, processors, own, busy):
    assert crowding(load, processors, own).startswith("busy machine") == busy
