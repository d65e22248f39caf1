"""Depth in models of every kind, and the generic view of those of no registered family."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from ldsearch.costs.workload import Workload
from ldsearch.errors import SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet, counting
from ldsearch.supernet.counting import trace_macs
from ldsearch.testing import StackContract, padded_batch, randomised
from ldsearch.testing.inputs import stock_output
from tests.tiny import (
    DECODERS,
    ENCODER_DECODERS,
    FAMILIES,
    VOCABULARY,
    tiny_decoder,
    tiny_encoder_decoder,
    tiny_model,
)

BLOCKS, LENGTHS = 4, [12, 5, 1, 8]
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
SIZES |= {"vocab_size": VOCABULARY, "max_position_embeddings": 64, **TOKENS}
SLIDING = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
WINDOWED = transformers.ModernBertDecoderConfig(
    **SIZES, local_attention=6, cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=3
)
SIZED_BY_BLOCK = transformers.AutoConfig.for_model(
    "gemma4_unified_text",
    **SIZES,
    num_key_value_heads=2,
    head_dim=8,
    global_head_dim=16,
    layer_types=["full_attention", "sliding_attention"] * 2,
    sliding_window=4,
)
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 16, "n_layer": 4, "n_head": 2}
DISENTANGLED = {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"]}
# Encoder-decoders whose decoder reads their input again: kind, head.
READERS = {
    "bart-classifier": ("bart", "SequenceClassification"),
    "bart-spans": ("bart", "QuestionAnswering"),
    "mbart-classifier": ("mbart", "SequenceClassification"),
    "t5-classifier": ("t5", "SequenceClassification"),
    "t5-spans": ("t5-gated", "QuestionAnswering"),
}
# Sequence classifiers: name of the stock classes, configuration.
CLASSIFIERS = {
    "layoutlm": ("LayoutLM", SIZES),
    # Its relative position embeddings belong to the encoder and stay; those it projects apart.
    "deberta-v2": ("DebertaV2", SIZES | DISENTANGLED),
    "gpt2-classifier": ("GPT2", GPT2 | TOKENS),
    "llama-classifier": ("Llama", SIZES),
    # Full attention in blocks 0 and 1, a window in 2 and 3.
    "qwen2-classifier": ("Qwen2", SIZES | SLIDING | {"num_key_value_heads": 2}),
}


def build(kind: str, **changes: object) -> PreTrainedModel:
    if kind in DECODERS:
        return tiny_decoder(kind, **changes)
    if kind in (*ENCODER_DECODERS, *UNSHIFTED):
        return tiny_encoder_decoder(kind, **changes)
    if kind in READERS:
        labels = 2 if kind.endswith("spans") else 4  # T5's head has no other number of ends
        return tiny_encoder_decoder(*READERS[kind], num_labels=labels, **changes)
    torch.manual_seed(0)
    if kind == "modernbert-decoder":
        return randomised(transformers.ModernBertDecoderForCausalLM(WINDOWED))
    if kind == "gemma4":
        return randomised(transformers.Gemma4UnifiedForCausalLM(SIZED_BY_BLOCK))
    name, fields = CLASSIFIERS[kind]
    config = getattr(transformers, f"{name}Config")(**{**fields, "num_labels": 3, **changes})
    return randomised(getattr(transformers, f"{name}ForSequenceClassification")(config))


# Their stock classes do not say what their decoders read to write a text.
UNSHIFTED = ("m2m_100", "blenderbot")


@pytest.mark.parametrize(
    "kind", [*CLASSIFIERS, *DECODERS, *ENCODER_DECODERS, *UNSHIFTED, *READERS, "modernbert-decoder", "gemma4"]
)
class TestStacks(StackContract):
    @pytest.fixture(autouse=True)
    def _choose(self, kind: str) -> None:
        self.kind = kind

    def model(self) -> PreTrainedModel:
        return build(self.kind)


def test_macs_do_not_depend_on_the_id_that_pads() -> None:
    """The stock mBART pads with 1, and its decoder starts with the last token that is no padding."""
    counted = [
        trace_macs(
            tiny_encoder_decoder("mbart", "QuestionAnswering", num_labels=2, pad_token_id=pad),
            {"encoder": "model.encoder.layers", "decoder": "model.decoder.layers"},
            Workload.from_lengths(LENGTHS, 16),
            "macs",
            {},
        )
        for pad in (0, 1)
    ]
    assert counted[0].blocks == counted[1].blocks


def batch_of(model: PreTrainedModel, lengths: list[int] = LENGTHS) -> dict[str, torch.Tensor]:
    return padded_batch(lengths, VOCABULARY, model.config.pad_token_id)


@pytest.fixture(params=CLASSIFIERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_it_says_that_it_is_depth_only_and_refuses_what_is_finer(kind):
    model = build(kind)
    supernet = Supernet(model)
    assert (supernet.blocks, supernet.pinned_of("encoder")) == (BLOCKS, ())
    for stack in (
        Subnet.of_encoder(range(BLOCKS), [9, 8, 7, 6], 9).encoder,
        Stack((0,), sublayers_off=((0, "attention"),)),
    ):
        subnet = Subnet(encoder=stack)
        for call in (lambda s: supernet(batch_of(model), s), supernet.materialise):
            with pytest.raises(SubnetError, match=r"depth-only, .*(\(those are bert|share_att_key)"):
                call(subnet)
    with pytest.raises(SupernetError, match=f"^{model.config.model_type} works depth-only"):
        _ = supernet.shape
    assert Supernet(tiny_model("bert")).supports_lengths


def test_a_decoder_without_a_norm_in_its_first_block_keeps_that():
    supernet = Supernet(build("modernbert-decoder"))
    assert supernet.pinned_of("decoder") == (0,)
    assert Supernet(build("gpt2")).pinned_of("decoder") == ()
    with pytest.raises(SubnetError, match=r"^block 0 of ModernBertDecoderForCausalLM stays: "):
        supernet.materialise(Subnet(decoder=Stack((1, 2))))


def test_lists_that_only_happen_to_be_as_long_as_the_model_is_deep_stay():
    """Those with an entry per block keep the entries of the kept blocks: ``test_writers``."""
    gpt2 = Supernet(build("gpt2-classifier", eos_token_id=[2, 3, 4, 5]))
    assert gpt2.materialise(Subnet.of_encoder([1, 3])).config.eos_token_id == [2, 3, 4, 5]


def test_traced_macs_are_those_counted_on_the_eager_model(kind):
    model = build(kind)
    supernet = Supernet(model)
    rng = np.random.default_rng(0)
    macs = supernet.macs(Workload.padded(50))
    model.set_attn_implementation("eager")
    for count in (1, 2, 3):
        subnet = Subnet.of_encoder(sorted(rng.permutation(BLOCKS)[:count].tolist()))
        n = int(rng.integers(2, 60))
        with FlopCounterMode(display=False) as counter:
            supernet(batch_of(model, [n]), subnet)
        traced = replace(macs, workload=Workload.padded(n))([subnet])[0]
        assert traced == pytest.approx(counter.get_total_flops() / 2, rel=1e-9)


def test_lengths_are_traced_once_whatever_the_workload(monkeypatch):
    count, traced = counting._count_macs, []

    def recorded(model, stacks, read, written):
        traced.append(read)
        return count(model, stacks, read, written)

    monkeypatch.setattr(counting, "_count_macs", recorded)
    supernet = Supernet(build("gpt2-classifier"))
    macs = [supernet.macs(Workload.padded(n)) for n in (10, 50, 10)]
    assert traced == [8, 16, 24, 41, 49]
    for n, own in zip((10, 50, 10), macs, strict=True):
        alone = Supernet(build("gpt2-classifier")).macs(Workload.padded(n))
        assert own([supernet.full]) == pytest.approx(alone([supernet.full]), rel=1e-12)


def test_macs_that_are_no_quadratic_are_refused(monkeypatch):
    counts = {8: 80.0, 16: 160.0, 24: 240.0, 41: 410.0, 49: 490.0}
    monkeypatch.setattr(
        "ldsearch.supernet.counting._count_macs", lambda m, s, n, t: ({"encoder": [counts[n]]}, 0.0)
    )

    def traced(tokens: int):
        return trace_macs(build("layoutlm"), {"encoder": ""}, Workload.padded(tokens), "macs", {})

    assert traced(50)([Subnet.of_encoder([0])])[0] == pytest.approx(500)
    counts[49] += 1  # a kink, beyond where short inputs could show it
    with pytest.raises(SupernetError, match="do not grow as a quadratic"):
        traced(50)
    traced(30)


def test_a_model_that_cannot_be_traced_is_one_line():
    with pytest.raises(SupernetError, match=r"^LayoutLMForSequenceClassification cannot be traced: ") as no:
        Supernet(build("layoutlm", max_position_embeddings=20)).macs(Workload.padded(8))
    assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    ("kind", "longest"),
    [
        *[("layoutlm", 64), ("gpt2-classifier", 64), ("llama-classifier", 64)],
        *[(family, 20) for family in FAMILIES],
    ],
)
def test_the_longest_input_leaves_out_positions_of_padding(kind, longest):
    model = tiny_model(kind, positions=20) if kind in FAMILIES else build(kind)
    assert Supernet(model).longest == longest
    assert stock_output(model, batch_of(model, [longest, 3])).isfinite().all()
    # Rotary and relative positions do not end.
    endless = ("llama-classifier", "modernbert", "deberta-v2", "nomic_bert", "gte", "jina_embeddings_v3")
    if kind not in endless:
        with pytest.raises((IndexError, RuntimeError)):
            stock_output(model, batch_of(model, [longest + 1, 3]))


def test_no_positions_are_no_bound():
    bloom = transformers.BloomConfig(vocab_size=9, hidden_size=8, n_layer=2, n_head=2, pad_token_id=0)
    assert Supernet(transformers.BloomForSequenceClassification(bloom)).longest == sys.maxsize
