"""Sub-networks beside the full model, on a planted clock: denominators, MACs, who is not faster; memory."""

import pytest
import torch

from ldsearch.latency.clock import Clock
from ldsearch.latency.measure import (
    FORWARD,
    Entry,
    MeasuredLatency,
    entries_of,
    measure,
    memory_of,
    random_cell,
    weight_bytes,
)
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.latency.planted_clock import PlantedClock
from tests.tiny import tiny_decoder, tiny_encoder_decoder, tiny_model

HALF, MOST = Subnet.of_encoder([0, 2]), Subnet.of_encoder([0, 1, 2, 3], [16, 16, 15, 15], 16)


def measured(seconds, subnets, runtime, full=None):
    clock, supernet = PlantedClock(), Supernet(tiny_model("bert"))

    def planted(entry):
        took = seconds["full" if entry.subnet == supernet.full else entry.subnet, entry.runtime]
        return [clock.work(entry.runtime, iter(lambda: took, 0))]

    entries = entries_of(supernet, subnets, runtime) if full is None else [Entry(supernet.full, full)]
    entries += [Entry(subnet, runtime) for subnet in subnets if full is not None]
    cell = random_cell(supernet, 1, 16)
    lines, _ = measure(supernet, entries, cell, FORWARD, Clock(3, 0, clock), runs=planted)
    assert [Entry(line.subnet, line.runtime) for line in lines] == entries
    assert [MeasuredLatency.from_dict(line.to_dict()) for line in lines] == lines
    return {(line.subnet, line.runtime): line for line in lines}


def test_an_export_is_compared_with_the_full_model_in_the_runtime_at_hand():
    line = measured({("full", "onnx"): 4.0, (HALF, "export"): 3.0}, [HALF], "export", "onnx")[HALF, "export"]
    assert (line.full_runtime, line.full_ms) == ("onnx", pytest.approx(4000))
    assert line.ratio == line.runtime_ratio == pytest.approx(0.75)
    assert "3e+03 ms at batch 1 of 16 tokens, 0.75 of the full" in line.describe()


def test_the_denominator_is_the_full_models_faster_path():
    seconds = {("full", "eager"): 4.0, ("full", "own"): 5.0, (HALF, "eager"): 3.0}
    line = measured(seconds, [HALF], "eager")[HALF, "eager"]
    assert (line.ratio, line.runtime_ratio) == (pytest.approx(0.75), pytest.approx(0.75))
    seconds["full", "own"] = 3.5
    line = measured(seconds, [HALF], "eager")[HALF, "eager"]
    assert (line.ratio, line.runtime_ratio) == (pytest.approx(3 / 3.5), pytest.approx(0.75))
    # Two blocks of four, and a classifier of a few MACs.
    assert line.macs_ratio == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("full", "half", "runtime", "slow"),
    [
        (2.0, 1.98, "compile", True),  # less than 3% in its own runtime, however fast that is
        (2.0, 1.9, "compile", False),
        (9.0, 4.5, "compile", True),  # half its own full model's, which is slower than stock
        (4.0, 3.85, "eager", False),
        (4.0, 3.9, "eager", True),
    ],
)
def test_fewer_macs_that_no_clock_sees_are_flagged(full, half, runtime, slow):
    seconds = {("full", "eager"): 4.0, ("full", "own"): 5.0, ("full", runtime): full, (HALF, runtime): half}
    seconds[MOST, runtime] = full
    found = measured(seconds, [HALF, MOST], runtime)
    assert found[HALF, runtime].not_faster == slow == ("not faster" in found[HALF, runtime].describe())
    assert found[MOST, runtime].macs_ratio > 0.9
    assert not any(line.not_faster for (subnet, _), line in found.items() if subnet != HALF)


def test_the_full_model_is_timed_once_in_each_runtime():
    supernet = Supernet(tiny_model("bert"))
    full = supernet.full
    assert entries_of(supernet, [full], "own") == [Entry(full, "eager"), Entry(full, "own")]
    found = entries_of(supernet, [HALF, HALF], "compile")
    assert [entry.runtime for entry in found] == ["eager", "own", "compile", "compile"]


def test_weights_are_counted_once_and_without_what_is_cut():
    supernet = Supernet(tiny_model("bert"))
    block = sum(4 * p.numel() for p in supernet.layers_of("encoder")[0].parameters())
    whole = memory_of(supernet, supernet.full)
    assert whole["cache_bytes_per_token"] is None
    half = memory_of(supernet, Subnet.of_encoder([0, 2]))
    assert whole["weight_bytes"] - half["weight_bytes"] == 2 * block
    tied = torch.nn.Linear(3, 5, bias=False)
    assert weight_bytes(torch.nn.Sequential(tied, tied)) == 60


@pytest.mark.parametrize(
    ("name", "heads", "width"),
    # Grouped queries: two key-value heads of four; qwen3's heads are wider than their share; mistral's
    # window of 4 is shorter than the prompt.
    [("gpt2", 4, 4), ("llama", 2, 4), ("mistral", 2, 4), ("qwen3", 2, 8)],
)
def test_a_decoders_cache_is_heads_times_width_of_keys_and_values(name, heads, width):
    supernet = Supernet(tiny_decoder(name))
    for subnet, blocks in ((supernet.full, 4), (Subnet.of_blocks({"decoder": [1, 3]}), 2)):
        found = memory_of(supernet, subnet)
        assert found["cache_bytes_per_token"] == blocks * 2 * heads * width * 4
        assert found["cache_bytes_per_source_token"] is None


def test_an_encoder_decoder_keeps_its_source_too():
    supernet = Supernet(tiny_encoder_decoder("bart"))
    found = memory_of(supernet, Subnet.of_blocks({"encoder": [1], "decoder": [0, 2, 3]}))
    assert found["cache_bytes_per_token"] == found["cache_bytes_per_source_token"] == 3 * 2 * 16 * 4
