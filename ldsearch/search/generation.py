"""Texts that sub-networks of an encoder-decoder generate, and what a metric makes of them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from ldsearch.bench import Bench
from ldsearch.disk.files import write_json
from ldsearch.errors import DataError
from ldsearch.evaluation.decoding import Decoding, decode
from ldsearch.options import DecodingOptions
from ldsearch.subnet import Subnet
from ldsearch.supernet.supernet import FixedSubnet
from ldsearch.tasks.metrics import Metric
from ldsearch.tasks.sequences import SequencePairs, SequenceToSequence
from ldsearch.trials.intervals import Statistics

# Bytes for what an encoder gave, until models with another encoder are decoded.
SHARED = 2 * 2**30


def decoding_of(options: DecodingOptions) -> Decoding:
    """The decoding that the options name.

    Raises:
        LdsearchError: If one of them makes no sense.
    """
    return Decoding(
        options.beams,
        options.length_penalty,
        options.min_target,
        options.max_target,
        options.no_repeat_ngram,
    )


def writing_task(bench: Bench) -> SequenceToSequence:
    """The bench's task.

    Raises:
        DataError: If it is no translation or summarisation.
    """
    if not isinstance(bench.task, SequenceToSequence):
        raise DataError("only translation and summarisation write texts that can be scored")
    return bench.task


def decoded(
    bench: Bench, subnets: Mapping[str, Subnet], folder: Path, metric: Metric, options: DecodingOptions
) -> Iterator[tuple[str, Statistics]]:
    """Names and statistics, sub-networks with one encoder together, each as soon as it is known.

    Args:
        bench: An encoder-decoder, opened on the split to decode.
        subnets: What to decode, by name.
        folder: Keeps a sub-network's texts as ``<name>.json``; what is there is not decoded again.
        metric: One of texts (``ldsearch.tasks.metrics``).
        options: How, and how many of the split's examples.

    Raises:
        DataError: If the task is no translation or summarisation.
        LdsearchError: If the model cannot decode so.
    """
    task, split, how = writing_task(bench), bench.evaluator.split, decoding_of(options)
    rows: SequencePairs = task.rows(split)
    sources, references = list(rows.sources)[: options.limit], rows.targets[: options.limit]

    def encoder(name: str) -> str:
        return repr(subnets[name].encoder)

    for alike in (list(names) for _, names in groupby(sorted(subnets, key=encoder), encoder)):
        encode = SharedEncoder(SHARED if len(alike) > 1 else 0)
        for name in alike:
            path = folder / f"{name}.json"
            if not path.is_file():
                model, reference = bench.supernet.materialise(subnets[name]), bench.record.reference
                texts = decode(model, bench.tokenizer, sources, how, max_source=reference, encode=encode)
                write_json(path, texts)
            yield name, metric.statistics(json.loads(path.read_text(encoding="utf-8")), references)


class SharedEncoder:
    """Encoder outputs, computed once for a batch, whichever model with that encoder asks.

    What no longer fits the bytes is computed again each time: answers are the same.

    Args:
        budget: Bytes of what is kept.
    """

    def __init__(self, budget: int = SHARED) -> None:
        self.left = budget
        self._kept: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """Arguments for the model's stock ``generate`` that replace the batch.

        Args:
            model: What ``Supernet.materialise`` gives, in eval mode.
            batch: ``input_ids`` and ``attention_mask``, shape (B, n) each.
        """
        key = tuple((tuple(tensor.shape), tensor.cpu().numpy().tobytes()) for tensor in batch.values())
        output = self._kept.get(key)
        if output is None:
            output = _encoded(model, batch)
            size = sum(tensor.numel() * tensor.element_size() for tensor in output)
            if size <= self.left:
                self.left -= size
                self._kept[key] = output
        hidden, mask = output
        # A new one each time: beam search repeats the rows of the one it gets in place.
        return {
            "encoder_outputs": BaseModelOutput(last_hidden_state=cast(Any, hidden)),
            "attention_mask": mask,
        }


def _encoded(model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Last hidden states (B, n, d), as ``generate`` would have them, and the mask of those that are real."""
    if isinstance(model, FixedSubnet):
        assert model.subnet.encoder is not None
        # Of heads and units that are off the weights are gone already.
        stack = replace(model.subnet.encoder, heads_off=(), ffn_share=())
        found = model.supernet.encoded(batch, stack)
        return found["encoder_outputs"].last_hidden_state, found["attention_mask"]
    output = cast(Any, model).get_encoder()(**batch, return_dict=True)
    return output.last_hidden_state, batch["attention_mask"]
