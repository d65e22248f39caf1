"""Many sub-networks through stock forwards: bit-equal to one by one, every prefix and every encoder once."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LayoutLMConfig, LayoutLMForSequenceClassification

from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError
from ldsearch.evaluation.stock import StockExecutor
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.supernet import inference
from tests.evaluation.test_prefix_tree import together
from tests.tiny import padded_batch, tiny_decoder, tiny_encoder_decoder

DECODERS = ["gpt2", "qwen2"]
ENCODER_DECODERS = ["bart", "t5"]


def choices(blocks: int, least: int = 0) -> list[tuple[int, ...]]:
    return [chosen for m in range(least, blocks + 1) for chosen in combinations(range(blocks), m)]


def free(subnets: Sequence[Subnet]) -> np.ndarray:
    """A cost that is nothing, for what is not about MACs: tracing takes seconds."""
    return np.zeros(len(subnets))


def texts(supernet: Supernet, read: Sequence[int], written: Sequence[int]) -> dict[str, torch.Tensor]:
    """Sources and what follows them."""
    batch = {name: padded_batch(read)[name] for name in ("input_ids", "attention_mask")}
    return supernet.inputs({**batch, "labels": padded_batch(written)["input_ids"].clamp(min=3)})


def assert_bit_by_bit(executor: StockExecutor, batch: dict[str, torch.Tensor], subnets: list[Subnet]) -> None:
    for subnet, logits in zip(subnets, together(executor, batch, subnets), strict=True):
        assert torch.equal(logits, inference(executor.supernet, batch, subnet)), subnet.describe()
        assert not logits.requires_grad


@pytest.mark.parametrize("name", DECODERS)
def test_every_depth_of_a_decoder_bit_by_bit_also_behind_padding(name):
    supernet = Supernet(tiny_decoder(name))
    batch = {n: t for n, t in padded_batch([9, 4]).items() if n in ("input_ids", "attention_mask")}
    subnets = [Subnet(decoder=Stack(blocks)) for blocks in choices(4)]
    subnets += subnets[:5]
    random.Random(0).shuffle(subnets)
    for given in (batch, {n: t.flip(1) for n, t in batch.items()}):
        executor = StockExecutor(supernet, free)
        assert_bit_by_bit(executor, given, subnets)
        # Of 4 blocks, every choice but none is the prefix of some choice.
        assert (executor.work.evaluations, executor.work.heads) == (15, 16)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_every_depth_of_an_encoder_decoder_bit_by_bit(name):
    supernet = Supernet(tiny_encoder_decoder(name))
    batch = texts(supernet, [9, 4], [6, 3])
    subnets = [Subnet(Stack(e), Stack(d)) for e in choices(3) for d in choices(4)[::2]]
    random.Random(1).shuffle(subnets)
    assert_bit_by_bit(StockExecutor(supernet, free), batch, subnets)


@pytest.mark.parametrize("memory", ["restored", "kept"])
def test_encoders_that_drop_tokens(memory):
    supernet = Supernet(tiny_encoder_decoder("bart"), memory=memory)
    batch = texts(supernet, [9, 4], [6, 3])
    encoders = [Stack((0, 1, 2), Lengths(tokens, 9)) for tokens in ((9, 6, 3), (7, 7, 2))]
    encoders += [Stack((0, 1, 2)), Stack((0, 2)), Stack((0, 2), heads_off=((2, 1),))]
    subnets = [Subnet(e, Stack(d)) for d in choices(4) for e in encoders]
    executor = StockExecutor(supernet, free)
    assert_bit_by_bit(executor, batch, subnets)
    # The five encoders' own blocks, and behind each every choice of decoder blocks but none.
    assert executor.work.evaluations == 3 + 3 + 3 + 2 + 2 + 5 * 15


def test_the_encoder_runs_once_for_all_decoders():
    model = tiny_encoder_decoder("mbart")
    runs: list[str] = []
    for stack in ("encoder", "decoder"):
        for layer in getattr(model.model, stack).layers:
            layer.fc1.register_forward_hook(lambda *_, stack=stack: runs.append(stack))
    supernet = Supernet(model)
    executor = StockExecutor(supernet, free)
    subnets = [Subnet(Stack(e), Stack(d)) for d in choices(4, 1) for e in choices(3, 1)]
    executor.run(texts(supernet, [9], [6]), subnets, lambda ends, logits: None)
    assert Counter(runs) == {"encoder": 7, "decoder": 7 * 15}
    assert executor.work.evaluations == 7 + 7 * 15


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_macs_are_those_that_torch_counts(name):
    written = 0 if name in DECODERS else 6
    if written:
        supernet = Supernet(tiny_encoder_decoder(name, attn_implementation="eager"))
        batch = texts(supernet, [9, 9], [6, 6])
        subnets = [Subnet(Stack(e), Stack(d)) for e in choices(3, 1) for d in choices(4, 1)]
    else:
        supernet = Supernet(tiny_decoder(name, attn_implementation="eager"))
        batch = {"input_ids": padded_batch([9, 9])["input_ids"]}
        subnets = [Subnet(decoder=Stack(d)) for d in choices(4, 1)]
    macs = supernet.macs(Workload.from_lengths([9], 9, [written] if written else None))
    executor = StockExecutor(supernet, macs)
    with FlopCounterMode(display=False) as counter:
        executor.run(batch, subnets, lambda ends, logits: None)
    assert executor.work.macs == pytest.approx(counter.get_total_flops() / 2, rel=0.01)
    alone = 2 * executor.macs(subnets).sum()
    assert executor.work.macs < alone


def test_an_unregistered_encoder_and_the_model_afterwards():
    torch.manual_seed(0)
    config = LayoutLMConfig(vocab_size=64, hidden_size=16, num_hidden_layers=4, num_attention_heads=2)
    supernet = Supernet(LayoutLMForSequenceClassification(config)).train()
    batch, subnets = padded_batch([9, 4]), [Subnet(Stack(blocks)) for blocks in choices(4)]
    before = inference(supernet, batch, supernet.full)
    assert_bit_by_bit(StockExecutor(supernet, free), batch, subnets)
    assert supernet.training
    assert torch.equal(inference(supernet, batch, supernet.full), before)
    assert all("forward" not in vars(module) for module in supernet.model.modules())


def test_rows_and_refusals():
    supernet = Supernet(tiny_decoder("llama"))
    executor = StockExecutor(supernet, free)
    assert executor.rows(8) > executor.rows(64) >= 1
    assert StockExecutor(supernet, executor.macs, budget=1).rows(8) == 1
    with pytest.raises(SubnetError, match="block 4"):
        executor.run({}, [Subnet(decoder=Stack((4,)))], lambda ends, logits: None)
