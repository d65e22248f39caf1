"""Depth in models of every kind: unregistered encoders, decoders with a head, decoders, encoder-decoders."""

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from ldsearch.testing import StackContract, randomised
from tests.tiny import DECODERS, ENCODER_DECODERS, VOCABULARY, tiny_decoder, tiny_encoder_decoder

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 16, "n_layer": 4, "n_head": 2}
DISENTANGLED = {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"]}
# Sequence classifiers: name of the stock classes, configuration.
CLASSIFIERS = {
    "mpnet": ("MPNet", SIZES | {"pad_token_id": 1}),
    "camembert": ("Camembert", SIZES | {"pad_token_id": 1}),
    "ernie": ("Ernie", SIZES),
    # Its relative position embeddings belong to the encoder and stay.
    "deberta-v2": ("DebertaV2", SIZES | DISENTANGLED),
    "gpt2-classifier": ("GPT2", GPT2 | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    "llama-classifier": ("Llama", SIZES),
    # Full attention in blocks 0 and 1, a window in 2 and 3.
    "qwen2-classifier": ("Qwen2", SIZES | SLIDING | {"num_key_value_heads": 2}),
}


def build(kind: str, **changes: object) -> PreTrainedModel:
    if kind in DECODERS:
        return tiny_decoder(kind, **changes)
    if kind in ENCODER_DECODERS:
        return tiny_encoder_decoder(kind, **changes)
    name, fields = CLASSIFIERS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**fields, "num_labels": 3, **changes})
    return randomised(getattr(transformers, f"{name}ForSequenceClassification")(config))


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *DECODERS, *ENCODER_DECODERS])
class TestStacks(StackContract):
    @pytest.fixture(autouse=True)
    def _choose(self, kind: str) -> None:
        self.kind = kind

    def model(self) -> PreTrainedModel:
        return build(self.kind)
