"""Models that would train or export into something else than they say are refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from ldsearch.errors import SupernetError
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.heads import HEADS, head_named
from ldsearch.supernet.refusals import refuse_config, refuse_sizes
from tests.tiny import tiny_model

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 8}
HEADED = SIZES | {"num_attention_heads": 2}


def refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(SupernetError, match=why) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def of(name: str, **fields: object) -> Callable[[], PreTrainedModel]:
    """Makes a stock model of two blocks."""
    stock = getattr(transformers, name)
    return lambda: stock(stock.config_class(vocab_size=9, pad_token_id=0, **fields))


def adapted() -> PreTrainedModel:
    model = tiny_model("bert")
    model.peft_config = {"default": object()}
    return model


def wrapped() -> torch.nn.Module:
    return type("PeftModel", (torch.nn.Module,), {"__module__": "peft.peft_model"})()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (of("DiffLlamaForCausalLM", **HEADED), "weighs attention by the block's number, so no block can be"),
        (
            of("AlbertForSequenceClassification", **HEADED, embedding_size=8, num_hidden_groups=2),
            "^Albert.* has several layers that take turns",
        ),
        (of("FNetForSequenceClassification", **SIZES), "^FNet.* reads no attention mask"),
        (adapted, "carries PEFT adapters: merge them"),
        (wrapped, "carries PEFT adapters: merge them"),
    ],
)
def test_models_are_refused(make, why):
    refused(lambda: Supernet(make()), why)


def test_folders_are_refused_before_any_weight_is_read(tmp_path: Path):
    config = {**tiny_model("bert").config.to_dict(), "architectures": ["BertForSequenceClassification"]}
    for file, fields, why in (
        ("adapter_config.json", {}, "holds PEFT adapters: merge them"),
        ("config.json", {**config, "quantization_config": {"load_in_8bit": True}}, "is quantised: train"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / file).write_text(json.dumps(fields))
        refused(lambda: load_model(str(tmp_path)), why)


def fields_of(kind: str, **changes: object) -> dict[str, object]:
    return transformers.AutoConfig.for_model(kind, **changes).to_dict()


EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (fields_of("longformer"), "attends within windows of its own"),
        (fields_of("led"), "attends within windows of its own"),
        (fields_of("big_bird"), "attends to blocks of tokens.*original_full"),
        (fields_of("gpt2", scale_attn_by_inverse_layer_idx=True), "scales attention by the block's number"),
        (fields_of("gemma4_unified_text", num_kv_shared_layers=2), "hands keys and values of some blocks on"),
        *(({key: 2}, "'it' is a mixture of experts") for key in EXPERTS),
        *(({"architectures": own}, "'it' is damaged: architectures") for own in (0.5, "BertModel", [1])),
    ],
)
def test_configurations_are_refused(fields: dict[str, object], why: str) -> None:
    refused(lambda: refuse_config(fields, "it"), why)


def test_full_attention_and_one_expert_are_not_refused() -> None:
    for fields in (fields_of("big_bird", attention_type="original_full"), dict.fromkeys(EXPERTS, 1)):
        refuse_config(fields, "full")
    refuse_config(dict.fromkeys(EXPERTS), "dense")


@pytest.mark.parametrize(
    "kind", ["gemma4_unified_text", "mra", "granitemoeshared", "nemotron_h", "deberta-v2"]
)
def test_sizes_that_may_be_none_are_none_by_default(kind: str) -> None:
    fields = fields_of(kind)
    assert 0 in fields.values()
    refuse_sizes(fields, kind)
    refused(lambda: refuse_sizes({**fields, "num_hidden_layers": 0}, kind), "num_hidden_layers 0, no whole")


@pytest.mark.parametrize(
    "name",
    # The last two are encoders that look both ways.
    ["BertForMultipleChoice", "BertModel", "", "ForNothing", "BertLMHeadModel", "RobertaForCausalLM"],
)
def test_other_heads_are_refused_with_those_there_are(name):
    refused(lambda: head_named(name), "^[^:].*only heads for SequenceClassification, TokenClass")
    assert head_named("XLMRobertaForMaskedLM") is HEADS["MaskedLM"]


def test_a_tokenizer_that_rust_cannot_read_is_one_line(tmp_path: Path) -> None:
    tiny_model("bert").save_pretrained(tmp_path)
    transformers.BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[MASK]": 2}).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "version": None}))  # JSON, but no tokenizer
    refused(lambda: load_model(str(tmp_path)), "the tokenizer of .* is damaged")
