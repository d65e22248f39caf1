"""Answers of encoder-decoders: greedy or beam search as transformers has it, the same in any batch."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedTokenizerBase

from ldsearch.errors import DataError, LdsearchError, SupernetError
from ldsearch.tasks.sequences import language

# From a model and a batch (``input_ids`` and ``attention_mask``) to what the model's stock ``generate`` takes
# instead of it.
Encode = Callable[[nn.Module, Mapping[str, torch.Tensor]], Mapping[str, Any]]

# All that is taken from a model's saved generation configuration: without them it would not start or end.
TOKEN_IDS = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
)


@dataclass(frozen=True)
class Decoding:
    """Options of greedy or beam search.

    Beam search ends an example when it has as many finished answers as beams, as fairseq does, with which
    Fan et al. 2019 decoded.

    Args:
        beams: Answers followed side by side; 1 is greedy search.
        length_penalty: An answer's log-probability is divided by its number of tokens to this power.
        min_length: The fewest tokens of an answer, its end not counted.
        max_length: The most tokens of an answer, its end counted.
        no_repeat_ngram: No run of so many tokens occurs twice in an answer; 0: any may.

    Raises:
        LdsearchError: If one of them makes no sense.
    """

    beams: int = 1
    length_penalty: float = 1.0
    min_length: int = 0
    max_length: int = 128
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise LdsearchError(f"decoding needs 1 beam or more, not {self.beams}")
        if not math.isfinite(self.length_penalty):
            raise LdsearchError(f"a length penalty is a finite number, not {self.length_penalty}")
        if self.beams == 1 and self.length_penalty != 1:
            raise LdsearchError("a length penalty compares finished answers: it needs 2 beams or more")
        if not 0 <= self.min_length < self.max_length:
            raise LdsearchError(
                f"the fewest tokens of an answer, {self.min_length}, must lie in 0..{self.max_length - 1}, "
                f"below the most, {self.max_length}"
            )
        if self.no_repeat_ngram < 0:
            raise LdsearchError(f"runs that may not repeat have 0 tokens or more, not {self.no_repeat_ngram}")

    def describe(self) -> str:
        """Describe the decoding, for reports."""
        parts = ["greedy"]
        if self.beams > 1:
            parts = [f"beam {self.beams}", f"length penalty {self.length_penalty:g}"]
        fewest = f"{self.min_length} to " if self.min_length else "at most "
        parts.append(f"{fewest}{self.max_length} tokens")
        if self.no_repeat_ngram:
            parts.append(f"no {self.no_repeat_ngram}-gram twice")
        return ", ".join(parts)


def decode(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    decoding: Decoding,
    *,
    max_source: int,
    batch_size: int = 32,
    encode: Encode | None = None,
) -> list[str]:
    """The answer to each text, in the order of the texts.

    Args:
        model: A stock encoder-decoder, or a module around one with its ``config`` and ``generate``.
        tokenizer: The model's.
        texts: Sources.
        decoding: How an answer is found.
        max_source: Sources are cut to so many tokens, special ones counted.
        batch_size: Sources decoded at once; the answers do not depend on it.
        encode: Makes a batch's encoder outputs; None: ``generate`` does.

    Raises:
        DataError: If a text has no tokens.
        LdsearchError: If sources are cut to nothing, or a batch has none.
        SupernetError: If the model is no encoder-decoder, or has no positions for so many tokens.
    """
    answers = [""] * len(texts)
    how: dict[str, Any] = {"max_source": max_source, "batch_size": batch_size, "encode": encode}
    for batch in decode_batches(model, tokenizer, texts, decoding, **how):
        for row, answer in batch:
            answers[row] = answer
    return answers


def decode_batches(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    decoding: Decoding,
    *,
    max_source: int,
    batch_size: int,
    encode: Encode | None = None,
) -> Iterator[list[tuple[int, str]]]:
    """Rows and their answers, batch by batch, the longest sources first.

    Of the rows that are left after some batches, this makes the same batches again. Between two of them the
    model is as it was: training or not, with its own generation configuration.

    Args and errors as for ``decode``.
    """
    if batch_size < 1:
        raise LdsearchError(f"a batch has 1 source or more, not {batch_size}")
    config = generation_config(model, tokenizer, decoding, max_source)
    sources = _encoded(tokenizer, texts, max_source)
    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    device = next(model.parameters()).device
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        padding = config.pad_token_id or 0
        ids = pad_sequence([sources[row] for row in rows], batch_first=True, padding_value=padding)
        lengths = torch.tensor([len(sources[row]) for row in rows])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        batch = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        with _generating(model, config):
            read, writer = (batch, model) if encode is None else (encode(model, batch), _generators(model)[0])
            generated = cast(Any, writer).generate(**read, generation_config=config)
        answers = tokenizer.batch_decode(generated, skip_special_tokens=True)
        yield list(zip(rows, answers, strict=True))


def generation_config(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, decoding: Decoding, max_source: int
) -> GenerationConfig:
    """The options of ``generate``: this decoding, the model's token ids, and nothing else of its own.

    An answer holds no pads: Marian, which starts with one, would else write them. Where targets begin with a
    language, so does an answer: NLLB's and M2M100's folders name none.

    Raises:
        DataError: If the tokenizer does not know the targets' language.
        LdsearchError: If sources are cut to nothing.
        SupernetError: If the model is no encoder-decoder, or has no positions for so many tokens.
    """
    if max_source < 1:
        raise LdsearchError(f"sources of {max_source} tokens say nothing: 1 is the least")
    owners = _generators(model)
    if not owners or not getattr(model.config, "is_encoder_decoder", False):
        raise SupernetError(f"{type(model).__name__} is no encoder-decoder that generates")
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and max(max_source, decoding.max_length) > positions:
        raise SupernetError(
            f"the model has {positions} positions, too few for sources of {max_source} tokens and answers of "
            f"{decoding.max_length}"
        )
    ids = {name: getattr(owners[0].generation_config, name, None) for name in TOKEN_IDS}
    ids["forced_bos_token_id"] = language(tokenizer) or ids["forced_bos_token_id"]
    ends = ids["eos_token_id"] if isinstance(ids["eos_token_id"], list) else [ids["eos_token_id"]]
    pad = ids["pad_token_id"]
    return GenerationConfig(
        **ids,
        suppress_tokens=None if pad is None or pad in ends else [pad],
        do_sample=False,
        num_beams=decoding.beams,
        early_stopping=decoding.beams > 1,
        length_penalty=decoding.length_penalty,
        min_new_tokens=decoding.min_length,
        max_new_tokens=decoding.max_length,
        no_repeat_ngram_size=decoding.no_repeat_ngram,
    )


def _generators(model: nn.Module) -> list[Any]:
    """The stock models inside that have a generation configuration, the outermost first."""
    return [part for part in model.modules() if getattr(part, "generation_config", None) is not None]


@contextmanager
def _generating(model: nn.Module, config: GenerationConfig) -> Iterator[None]:
    """Without dropout and gradients, and without the options that the model was saved with."""
    modes = [(part, part.training) for part in model.modules()]
    # generate() fills in from the saved configuration whatever the one it is given leaves open.
    saved = [(part, part.generation_config) for part in _generators(model)]
    model.eval()
    for part, _ in saved:
        part.generation_config = config
    try:
        # Not inference_mode: position tables grown inside it could not be trained through afterwards.
        with torch.no_grad():
            yield
    finally:
        for part, own in saved:
            part.generation_config = own
        for part, training in modes:
            part.training = training


def _encoded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_source: int) -> list[torch.Tensor]:
    if not texts:
        return []
    rows = tokenizer(list(texts), truncation=True, max_length=max_source)["input_ids"]
    empty = next((row for row, ids in enumerate(rows) if not ids), None)
    if empty is not None:
        raise DataError(f"source {empty + 1} has no tokens: {texts[empty]!r}")
    return [torch.tensor(ids) for ids in rows]
