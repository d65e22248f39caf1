"""Model heads by the name of their stock class, run as stock code on given hidden states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils.generic import ModelOutput

from ldsearch.errors import SupernetError
from ldsearch.supernet import embedding

# What a decoder attends to where its encoder dropped tokens.
Memory = Literal["restored", "kept"]


@dataclass(frozen=True)
class Head:
    """One kind of head.

    Args:
        name: As in the stock class's name, ``...For<name>``.
        auto: Loads models with it.
        pools: Whether it runs once per example rather than once per token.
        reads_first: Whether a configuration makes it read position 0 only: that token always stays, and
            what happens to the others after the last attention cannot matter. Else dropped tokens are
            restored for it, unless it ``embeds``.
        causal: Whether the model is a decoder on its own.
        generates: Whether the model writes text, token by token.
        embeds: Whether its answer is a vector of the tokens that are left: none is restored for it.
        maps: Whether states of dropped tokens are mapped to the last block's (``left_behind``).
    """

    name: str
    auto: Any
    pools: bool
    reads_first: Callable[[PreTrainedConfig], bool]
    causal: bool = False
    generates: bool = False
    embeds: bool = False
    maps: bool = False

    def averages(self, reads_first: bool) -> bool:
        """Whether its answer is the mean of all last states, which is corrected for dropped tokens."""
        return self.embeds and not reads_first


def _pools_first(config: PreTrainedConfig) -> bool:
    return getattr(config, "classifier_pooling", "cls") == "cls"


HEADS: Mapping[str, Head] = MappingProxyType(
    {
        head.name: head
        for head in (
            Head("SequenceClassification", AutoModelForSequenceClassification, True, _pools_first),
            Head("TokenClassification", AutoModelForTokenClassification, False, lambda _: False, maps=True),
            Head("QuestionAnswering", AutoModelForQuestionAnswering, False, lambda config: False),
            Head("MaskedLM", AutoModelForMaskedLM, False, lambda config: False),
            Head(
                embedding.HEAD,
                embedding.AutoSentenceEmbedding,
                True,
                lambda config: embedding.pooling_of(config) == "cls",
                embeds=True,
            ),
            Head("CausalLM", AutoModelForCausalLM, False, lambda config: False, True, True),
            Head("Seq2SeqLM", AutoModelForSeq2SeqLM, False, lambda config: False, False, True),
        )
    }
)


# Those of encoders too are listed, which look both ways unless configured not to.
_CAUSAL = {
    name
    for model_type, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
    if model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
}


def head_of(architecture: str) -> str:
    """The name of a stock class's head, supported or not."""
    name = architecture.rpartition("For")[2]
    if architecture in _CAUSAL:
        return "CausalLM"
    if name == "CausalLM":
        return architecture  # of an encoder
    # Not by its mapping, which lists models of speech too.
    return "Seq2SeqLM" if name == "ConditionalGeneration" or architecture == "MarianMTModel" else name


def head_named(architecture: str) -> Head:
    """The head of a stock class, by the class's name.

    Raises:
        SupernetError: If it is none of those supported.
    """
    name = head_of(architecture)
    if name not in HEADS:
        raise SupernetError(
            f"{architecture or 'a model without a head'}: only heads for {', '.join(HEADS)} are supported"
        )
    return HEADS[name]


def decodes(model: PreTrainedModel) -> bool:
    """Whether it has a decoder behind an encoder; T5's encoder alone has the configuration of both."""
    return getattr(model.config, "is_encoder_decoder", False) and hasattr(model.base_model, "decoder")


def require_memory(model: PreTrainedModel, memory: str) -> None:
    """Refuse what no decoder attends to, and kept tokens alone where it reads its input once more.

    Raises:
        SupernetError: If it is one.
    """
    if memory not in list(get_args(Memory)):
        raise SupernetError(f"unknown memory {memory!r}: use {' or '.join(get_args(Memory))}")
    if memory == "kept" and decodes(model) and not head_named(type(model).__name__).generates:
        raise SupernetError("--memory kept is for decoders that write: this one reads its input once more")
    if memory == "kept" and not decodes(model) and not head_named(type(model).__name__).pools:
        raise SupernetError("--memory kept: each token is answered, kept or not (use restored)")


def end_read(model: PreTrainedModel) -> int | None:
    """The token that ends a text, where a decoder's classifier reads what became of the last one."""
    head = head_named(type(model).__name__)
    return cast(int, model.config.eos_token_id) if head.pools and decodes(model) else None


def ended(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """Random ids (B, n) as a classifier needs them: each row ends once where it reads the token that does."""
    if (end := end_read(model)) is None:
        return ids
    other = end + 1 if end + 1 < model.config.vocab_size else end - 1
    last = mask.sum(dim=1, keepdim=True) - 1
    return ids.masked_fill(ids == end, other).scatter(1, last, end)


def require_ends(model: PreTrainedModel, ids: Tensor) -> None:
    """Refuse rows that end a text more or less often than others, or never: stock classifiers read the last.

    Raises:
        SupernetError: If there are some.
    """
    if (end := end_read(model)) is None:
        return
    ends = (ids == end).sum(dim=1)
    if not bool((ends == ends[:1].clamp(min=1)).all()):
        raise SupernetError(
            f"{type(model).__name__} reads the token that ends a text ({end}): every row of a batch must "
            "have as many of them, at least one; take it out of texts that have it written in them"
        )


class _Answered:
    """The model to its own head code, its base model having answered already."""

    def __init__(self, model: PreTrainedModel, answer: ModelOutput) -> None:
        self._model = model
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        if name == self._model.base_model_prefix:
            return lambda *inputs, **options: self._answer
        return getattr(self._model, name)


def run_head(model: PreTrainedModel, hidden: Tensor, named: Mapping[str, Tensor]) -> ModelOutput:
    """The stock model's output for last hidden states (B, n, d): its forward with the base model answered.

    Args:
        model: The stock model.
        hidden: Last hidden states.
        named: What else its forward takes: ``attention_mask`` of those states, ``labels`` for a loss.
    """
    base: Any = model.base_model
    pooler = getattr(base, "pooler", None)
    if isinstance(pooler, nn.Linear):  # ALBERT's, which takes its first token itself
        pooled = base.pooler_activation(pooler(hidden[:, 0]))
    else:
        pooled = None if pooler is None else pooler(hidden)
    answer = BaseModelOutputWithPooling(last_hidden_state=cast(Any, hidden), pooler_output=pooled)
    stand_in = cast(Any, _Answered(model, answer))
    output: ModelOutput = type(model).forward(stand_in, **named)
    return output


def logits_of(output: ModelOutput) -> Tensor:
    """An output's logits; a span head's two as shape (B, n, 2), vectors (B, d) by either of their names."""
    if "start_logits" in output:
        return torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
    logits: Tensor = output[embedding.OUTPUT if embedding.OUTPUT in output else "logits"]
    return logits
