"""Depth in models of every kind, and the generic view of those of no registered family."""

import sys

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedModel

from ldsearch.costs.workload import Workload
from ldsearch.errors import LdsearchError, SubnetError, SupernetError
from ldsearch.subnet import Stack, Subnet
from ldsearch.supernet import Supernet, counting
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
SIZES |= {"max_position_embeddings": 64}
SLIDING = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
GPT2 = {"n_positions": 64, "n_embd": 16, "n_layer": 4, "n_head": 2}
DISENTANGLED = {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"]}
# Causal language models: name in configurations, fields.
CAUSAL = {
    "modernbert-decoder": (
        "modernbert-decoder",
        {"local_attention": 6, "cls_token_id": 1, "sep_token_id": 2, "global_attn_every_n_layers": 3},
    ),
    # The sizes of its blocks differ.
    "gemma4": (
        "gemma4_unified_text",
        {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 4}
        | {"head_dim": 8, "global_head_dim": 16},
    ),
    # It has the depth of an encoder that is not there.
    "marian-alone": (
        "marian",
        {"encoder_layers": 4, "decoder_layers": 4, "decoder_attention_heads": 2, "decoder_ffn_dim": 8},
    ),
}
# Sequence classifiers: name in configurations, fields.
CLASSIFIERS = {
    "layoutlm": ("layoutlm", SIZES),
    # Its relative position embeddings belong to the encoder and stay; those it projects apart.
    "deberta-v2-apart": ("deberta-v2", SIZES | DISENTANGLED),
    "gpt2-classifier": ("gpt2", GPT2),
    "llama-classifier": ("llama", SIZES),
    # Full attention in blocks 0 and 1, a window in 2 and 3.
    "qwen2-classifier": ("qwen2", SIZES | SLIDING | {"num_key_value_heads": 2}),
}
# Encoder-decoders whose decoder reads their input again: kind, head.
READERS = {
    "bart-classifier": ("bart", "SequenceClassification"),
    "bart-spans": ("bart", "QuestionAnswering"),
    "mbart-classifier": ("mbart", "SequenceClassification"),
    "t5-classifier": ("t5", "SequenceClassification"),
    "t5-spans": ("t5-gated", "QuestionAnswering"),
}
# Their stock classes do not say what their decoders read to write a text.
UNSHIFTED = ("m2m_100", "blenderbot")


def build(kind: str, **changes: object) -> PreTrainedModel:
    if kind in FAMILIES:
        return tiny_model(kind, **changes)
    if kind in DECODERS:
        return tiny_decoder(kind, **changes)
    if kind in CAUSAL:
        name, fields = CAUSAL[kind]
        return tiny_decoder(name, **fields)
    if kind in (*ENCODER_DECODERS, *UNSHIFTED):
        return tiny_encoder_decoder(kind, **changes)
    if kind in READERS:
        labels = 2 if kind.endswith("spans") else 4  # T5's head has no other number of ends
        return tiny_encoder_decoder(*READERS[kind], num_labels=labels, **changes)
    torch.manual_seed(0)
    name, fields = CLASSIFIERS[kind]
    known = {"vocab_size": VOCABULARY, "num_labels": 3, **TOKENS, **fields, **changes}
    config = transformers.AutoConfig.for_model(name, **known)
    return randomised(transformers.AutoModelForSequenceClassification.from_config(config))


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *CAUSAL, *READERS, *DECODERS, *ENCODER_DECODERS, *UNSHIFTED])
class TestStacks(StackContract):
    @pytest.fixture(autouse=True)
    def _choose(self, kind: str) -> None:
        self.kind = kind

    def model(self) -> PreTrainedModel:
        return build(self.kind)


def test_macs_do_not_depend_on_the_id_that_pads() -> None:
    """The stock mBART pads with 1, and its decoder starts with the last token that is no padding."""
    options = {"head": "QuestionAnswering", "num_labels": 2}
    models = (tiny_encoder_decoder("mbart", **options, pad_token_id=pad) for pad in (0, 1))
    zero, one = (Supernet(model).macs(Workload.from_lengths(LENGTHS, 16)) for model in models)
    assert zero.blocks == one.blocks


def batch_of(model: PreTrainedModel, lengths: list[int] = LENGTHS) -> dict[str, torch.Tensor]:
    return padded_batch(lengths, VOCABULARY, model.config.pad_token_id)


@pytest.mark.parametrize(
    ("kind", "why"), [("layoutlm", r"\(those are bert"), ("deberta-v2-apart", "share_att_key")]
)
def test_it_says_why_it_is_depth_only(kind, why):
    supernet = Supernet(build(kind))
    lengths = Subnet.of_encoder(range(BLOCKS), [9, 8, 7, 6], 9)
    for call in (
        lambda: supernet(batch_of(supernet.model), lengths),
        lambda: supernet.materialise(lengths),
        lambda: supernet.shape,
    ):
        with pytest.raises(LdsearchError, match=f"^{kind[:8]}.* works depth-only, .*{why}"):
            call()


def test_a_decoder_without_a_norm_in_its_first_block_keeps_that():
    supernet = Supernet(build("modernbert-decoder"))
    assert supernet.pinned_of("decoder") == (0,)
    with pytest.raises(SubnetError, match=r"^block 0 of ModernBertDecoderForCausalLM stays: "):
        supernet.materialise(Subnet(decoder=Stack((1, 2))))


def test_lists_that_only_happen_to_be_as_long_as_the_model_is_deep_stay():
    """Those with an entry per block keep the entries of the kept blocks: ``test_writers``."""
    gpt2 = Supernet(build("gpt2-classifier", eos_token_id=[2, 3, 4, 5]))
    assert gpt2.materialise(Subnet.of_encoder([1, 3])).config.eos_token_id == [2, 3, 4, 5]


def test_lengths_are_traced_once_whatever_the_workload(monkeypatch):
    count, traced = counting._count_macs, []
    monkeypatch.setattr(counting, "_count_macs", lambda *given: traced.append(given[2]) or count(*given))
    supernet, workloads = Supernet(build("gpt2-classifier")), [Workload.padded(n) for n in (10, 50, 10)]
    macs = [supernet.macs(workload)([supernet.full]) for workload in workloads]
    assert traced == [8, 16, 24, 41, 49]
    alone = [Supernet(supernet.model).macs(workload)([supernet.full]) for workload in workloads]
    np.testing.assert_allclose(macs, alone, rtol=1e-12)


def test_macs_that_are_no_quadratic_are_refused(monkeypatch):
    counts = {8: 80.0, 16: 160.0, 24: 240.0, 41: 410.0, 49: 490.0}
    monkeypatch.setattr(counting, "_count_macs", lambda m, s, n, t: ({"encoder": [counts[n]] * 4}, 0.0))
    model, first = build("layoutlm"), Subnet.of_encoder([0])
    assert Supernet(model).macs(Workload.padded(50))([first])[0] == pytest.approx(500)
    counts[49] += 1  # a kink, beyond where short inputs could show it
    with pytest.raises(SupernetError, match="do not grow as a quadratic"):
        Supernet(model).macs(Workload.padded(50))
    Supernet(model).macs(Workload.padded(30))


def test_a_model_that_cannot_be_traced_is_one_line():
    with pytest.raises(SupernetError, match=r"^LayoutLMForSequenceClassification cannot be traced: .*$"):
        Supernet(build("layoutlm", max_position_embeddings=20)).macs(Workload.padded(8))


# Their rotary and relative positions do not end.
ENDLESS = ("llama-classifier", "modernbert", "deberta-v2", "nomic_bert", "gte", "jina_embeddings_v3")


@pytest.mark.parametrize("kind", ["layoutlm", "gpt2-classifier", "llama-classifier", *FAMILIES])
def test_the_longest_input_leaves_out_positions_of_padding(kind):
    model, longest = (build(kind, positions=20), 20) if kind in FAMILIES else (build(kind), 64)
    assert Supernet(model).longest == longest
    assert stock_output(model, batch_of(model, [longest, 3])).isfinite().all()
    if kind not in ENDLESS:
        with pytest.raises((IndexError, RuntimeError)):
            stock_output(model, batch_of(model, [longest + 1, 3]))


def test_no_positions_are_no_bound():
    bloom = transformers.BloomConfig(vocab_size=9, hidden_size=8, n_layer=2, n_head=2, pad_token_id=0)
    assert Supernet(transformers.BloomForSequenceClassification(bloom)).longest == sys.maxsize
