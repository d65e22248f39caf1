"""Costs of models that write: against torch's own counter, and the published size of a pruned model."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel

from ldsearch.costs.traced import TracedMacs
from ldsearch.errors import SubnetError
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.workload import Workload
from tests.costs.drawing import draws
from tests.tiny import DECODERS, padded_batch, tiny_decoder, tiny_encoder_decoder

REFERENCE = 60
SOME = Workload.from_lengths([9], REFERENCE, [5])


@cache
def supernet_of(name: str) -> tuple[Supernet, TracedMacs]:
    """And its costs at some lengths: traced anew for every count they would take minutes."""
    supernet = Supernet((tiny_decoder if name in DECODERS else tiny_encoder_decoder)(name))
    return supernet, supernet.macs(SOME)


def counted(supernet: Supernet, subnet: Subnet, n: int, t: int) -> float:
    """Half of the operations that torch counts in the eager materialised model."""
    supernet.model.set_attn_implementation("eager")
    batch = padded_batch([n])
    if subnet.encoder is not None:
        batch["decoder_input_ids"] = padded_batch([t])["input_ids"]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        supernet.materialise(subnet).eval()(**batch)
    return counter.get_total_flops() / 2


def some_of(rng: np.random.Generator, depth: int) -> Stack:
    count = int(rng.integers(1, depth + 1))
    return Stack(tuple(sorted(rng.permutation(depth)[:count].tolist())))


def at(macs: TracedMacs, lengths: list[int], written: list[int]) -> TracedMacs:
    """The same costs at other lengths."""
    workload = Workload.from_lengths(lengths, REFERENCE, written)
    encoder = macs.encoder and replace(macs.encoder, workload=workload)
    return replace(macs, workload=workload, encoder=encoder)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoders_macs_are_those_that_torch_counts(name):
    (supernet, macs), rng = supernet_of(name), np.random.default_rng(0)
    for _ in range(draws(name == "gpt2")):
        subnet, n = Subnet(decoder=some_of(rng, 4)), int(rng.integers(1, REFERENCE))
        assert at(macs, [n], [3])([subnet])[0] == pytest.approx(counted(supernet, subnet, n, 0), rel=1e-9)


@pytest.mark.parametrize("name", ["t5", "t5-gated"])
def test_an_encoder_decoders_macs_are_those_that_torch_counts(name):
    """Of one that is no registered family; the others: ``tests.costs.test_counters``."""
    (supernet, macs), rng = supernet_of(name), np.random.default_rng(0)
    for _ in range(draws(name == "t5-gated")):
        subnet = Subnet(some_of(rng, 3), some_of(rng, 4))
        n, t = (int(length) for length in rng.integers(1, REFERENCE, 2))
        assert at(macs, [n], [t])([subnet])[0] == pytest.approx(counted(supernet, subnet, n, t), rel=1e-9)
    subnet = Subnet.full(3, 4)
    pairs = [(7, 20), (30, 4), (30, 4)]
    mean = np.mean([at(macs, [n], [t])([subnet])[0] for n, t in pairs])
    assert at(macs, [7, 30, 30], [20, 4, 4])([subnet])[0] == pytest.approx(mean)


def test_macs_with_dropped_tokens_are_those_that_torch_counts_for_both_memories(monkeypatch):
    (supernet, restored), rng = supernet_of("bart"), np.random.default_rng(1)
    model = supernet.model
    monkeypatch.setattr("ldsearch.supernet.supernet.trace_macs", lambda *asked: restored)
    costs = {"restored": restored, "kept": Supernet(model, memory="kept").macs(SOME)}
    for draw in range(10):
        blocks = some_of(rng, 3).blocks
        tokens = tuple(sorted(rng.integers(1, REFERENCE, len(blocks)).tolist(), reverse=True))
        lengths = Lengths(tokens, REFERENCE, "ratio" if draw % 2 else "absolute")
        off = {"heads_off": ((blocks[0], 1),), "ffn_share": ((blocks[-1], 0.5),)} if draw % 3 == 0 else {}
        subnet = Subnet(Stack(blocks, lengths, **off), some_of(rng, 4))
        n, t = (int(length) for length in rng.integers(2, REFERENCE, 2))
        found = {}
        for memory, macs in costs.items():
            supernet = Supernet(model, memory=memory)
            found[memory] = at(macs, [n], [t])([subnet])[0]
            assert found[memory] == pytest.approx(counted(supernet, subnet, n, t), rel=1e-9), subnet
        # Fewer to attend to, unless all of them are left.
        assert found["kept"] < found["restored"] or lengths.kept(len(blocks) - 1, n) == n


def test_costs_of_another_model_are_refused():
    _, macs = supernet_of("gpt2")
    for subnet, why in (
        (Subnet.of_encoder([0]), "counted of decoder"),
        (Subnet(decoder=Stack((4,))), "block 4 of a model of 4 blocks"),
        (Subnet(decoder=Stack((0,), ffn_share=((0, 0.5),))), "whole blocks only"),
    ):
        with pytest.raises(SubnetError, match=why):
            macs([subnet])


def test_sixteen_layers_pruned_to_eight_lose_what_fairseqs_readme_says():
    """Of blocks of width 1024 and 4096, 12,596,224 parameters each: 246,933,504 to 146,163,712."""
    config = GPT2Config(vocab_size=50, n_positions=8, n_embd=1024, n_head=8, n_layer=16, n_inner=4096)
    with torch.device("meta"):
        supernet = Supernet(GPT2LMHeadModel(config))
    half = Subnet(decoder=Stack(tuple(range(0, 16, 2))))
    whole, pruned = supernet.parameters_cost([supernet.full, half])
    assert whole - pruned == 246_933_504 - 146_163_712 == 8 * 12_596_224
    assert sum(p.numel() for p in supernet.materialise(half).parameters()) == pruned
