"""Memory: weights and caches against closed forms of the configurations."""

import pytest
import torch

from ldsearch.latency.measure import memory_of, peak_activation_bytes, weight_bytes
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.tiny import tiny_decoder, tiny_encoder_decoder, tiny_model


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


def test_activations_on_a_cpu_are_not_guessed():
    assert peak_activation_bytes(lambda: 1 / 0, torch.device("cpu")) is None
