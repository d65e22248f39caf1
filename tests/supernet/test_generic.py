"""The generic view: any stock model with one list of blocks, depth-only."""

import sys

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.counting import trace_macs
from ldsearch.supernet.heads import logits_of
from ldsearch.testing import padded_batch
from ldsearch.workload import Workload
from tests.supernet.test_stacks import CLASSIFIERS, SIZES, build
from tests.tiny import tiny_model

BLOCKS, VOCABULARY, LENGTHS = 4, 60, [12, 5, 1, 8]


def batch_of(model: PreTrainedModel, lengths: list[int] = LENGTHS) -> dict[str, torch.Tensor]:
    return padded_batch(lengths, VOCABULARY, model.config.pad_token_id)


@torch.inference_mode()
def stock(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return logits_of(model(**batch))


@pytest.fixture(params=CLASSIFIERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_it_says_that_it_is_depth_only_and_refuses_what_is_finer(kind):
    model = build(kind)
    supernet = Supernet(model)
    assert (supernet.blocks, supernet.pinned) == (BLOCKS, ())
    for stack in (
        Subnet.of_encoder(range(BLOCKS), [9, 8, 7, 6], 9).encoder,
        Stack((0,), heads_off=((0, 1),)),
        Stack((0,), ffn_share=((0, 0.5),)),
        Stack((0,), sublayers_off=((0, "attention"),)),
    ):
        subnet = Subnet(encoder=stack)
        for call in (lambda s: supernet(batch_of(model), s), supernet.materialise):
            with pytest.raises(SubnetError, match=r"depth-only, .* \(those are bert"):
                call(subnet)
    with pytest.raises(SupernetError, match=f"^{model.config.model_type} works depth-only"):
        _ = supernet.shape
    assert Supernet(tiny_model("bert")).supports_lengths


def test_lists_with_an_entry_per_block_keep_the_entries_of_the_kept_blocks():
    kept = Subnet.of_encoder([1, 3])
    qwen = Supernet(build("qwen2-classifier")).materialise(kept)
    assert qwen.config.layer_types == ["full_attention", "sliding_attention"]
    longformer = transformers.LongformerConfig(**SIZES, attention_window=[2, 4, 6, 8])
    pruned = Supernet(transformers.LongformerForSequenceClassification(longformer)).materialise(kept)
    assert pruned.config.attention_window == [4, 8]
    # Lists that only happen to be as long as the model is deep.
    gpt2 = Supernet(build("gpt2-classifier", eos_token_id=[2, 3, 4, 5])).materialise(kept)
    assert gpt2.config.eos_token_id == [2, 3, 4, 5]


def test_traced_macs_are_those_counted_on_the_eager_model(kind):
    model = build(kind)
    supernet = Supernet(model)
    rng = np.random.default_rng(0)
    drawn = [tuple(sorted(rng.permutation(BLOCKS)[:count].tolist())) for count in (1, 2, 3)]
    lengths = [int(n) for n in rng.integers(2, 60, len(drawn))]
    subnets = [Subnet.of_encoder(blocks) for blocks in drawn]
    macs = [supernet.macs(Workload.padded(n))([s])[0] for n, s in zip(lengths, subnets, strict=True)]
    model.set_attn_implementation("eager")
    for n, subnet, traced in zip(lengths, subnets, macs, strict=True):
        with FlopCounterMode(display=False) as counter:
            supernet(batch_of(model, [n]), subnet)
        assert traced == pytest.approx(counter.get_total_flops() / 2, rel=1e-9)


def test_traced_macs_are_means_over_the_workload():
    supernet, subnet = Supernet(build("mpnet")), Subnet.of_encoder([1, 3])
    short, long = (supernet.macs(Workload.padded(n))([subnet])[0] for n in (4, 50))
    mean = supernet.macs(Workload.from_lengths([4, 4, 4, 50], 50))([subnet])[0]
    assert mean == pytest.approx((3 * short + long) / 4)
    with pytest.raises(SubnetError, match="whole blocks only"):
        supernet.macs(Workload.padded(4))([Subnet(encoder=Stack((0,), heads_off=((0, 1),)))])


def test_macs_that_are_no_quadratic_are_refused(monkeypatch):
    counts = {8: 80.0, 16: 160.0, 24: 240.0, 41: 410.0, 49: 490.0}
    monkeypatch.setattr(
        "ldsearch.supernet.counting._count_macs", lambda m, s, n, t: ({"encoder": [counts[n]]}, 0.0)
    )
    model = build("mpnet")
    assert trace_macs(model, {"encoder": ""}, Workload.padded(50), "macs")([Subnet.of_encoder([0])])[
        0
    ] == pytest.approx(500)
    counts[49] += 1  # a kink, beyond where short inputs could show it
    with pytest.raises(SupernetError, match="do not grow as a quadratic"):
        trace_macs(model, {"encoder": ""}, Workload.padded(50), "macs")
    trace_macs(model, {"encoder": ""}, Workload.padded(30), "macs")


def test_a_model_that_cannot_be_traced_is_one_line():
    with pytest.raises(SupernetError, match=r"^ErnieForSequenceClassification cannot be traced: ") as refused:
        Supernet(build("ernie", max_position_embeddings=20)).macs(Workload.padded(8))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "longest"),
    [("mpnet", 62), ("camembert", 62), ("ernie", 64), ("gpt2-classifier", 64), ("llama-classifier", 64)],
)
def test_the_longest_input_leaves_out_positions_of_padding(kind, longest):
    model = build(kind)
    supernet = Supernet(model)
    assert supernet.longest == longest
    assert stock(model, batch_of(model, [longest, 3])).isfinite().all()
    if kind != "llama-classifier":
        with pytest.raises((IndexError, RuntimeError)):
            stock(model, batch_of(model, [longest + 1, 3]))


def test_no_positions_are_no_bound():
    bloom = transformers.BloomConfig(vocab_size=9, hidden_size=8, n_layer=2, n_head=2, pad_token_id=0)
    assert Supernet(transformers.BloomForSequenceClassification(bloom)).longest == sys.maxsize
