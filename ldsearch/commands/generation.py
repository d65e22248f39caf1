"""Generated answers of models, and what a metric makes of them; what one encoder gives serves many."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from ldsearch.bench import Bench
from ldsearch.commands.options import DecodingOptions
from ldsearch.decoding import Decoding, Encode, decode
from ldsearch.errors import DataError
from ldsearch.files import write_json
from ldsearch.intervals import Statistics
from ldsearch.subnet import Subnet
from ldsearch.supernet.supernet import FixedSubnet
from ldsearch.tasks.base import score
from ldsearch.tasks.metrics import Metric
from ldsearch.tasks.sequences import SequencePairs, SequenceToSequence
from ldsearch.trial import Score

# Bytes for what an encoder gave, until models with another encoder are decoded.
SHARED = 2 * 2**30


@dataclass(frozen=True)
class Generation:
    """Answers, and how good they are.

    Args:
        texts: One answer for each source, in their order.
        metric: What measured them.
        statistics: Per example, shape (examples,) or (examples, parts); scores of sub-networks on the same
            sources are compared by their paired bootstrap.
        decoding: How the answers were found.
    """

    texts: tuple[str, ...]
    metric: Metric
    statistics: Statistics
    decoding: Decoding

    @property
    def score(self) -> Score:
        """Score of the corpus."""
        return score(self.metric, self.statistics)


def generate(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    metric: Metric,
    decoding: Decoding,
    max_source: int,
    encode: Encode | None = None,
) -> Generation:
    """Decode sources and compare the answers with references.

    Args:
        model: An encoder-decoder; for a sub-network what ``Supernet.materialise`` gives.
        tokenizer: The model's.
        sources: What is to be translated or summarised.
        references: One good answer or several of each.
        metric: One of ``ldsearch.tasks.metrics``.
        decoding: How an answer is found.
        max_source: Sources are cut to so many tokens.
        encode: Makes encoder outputs; None: the model does.

    Raises:
        DataError: If there are no sources, or as many references, or a source has no tokens.
        LdsearchError: If the model cannot decode so.
    """
    if not sources or len(sources) != len(references):
        raise DataError(f"{len(sources)} sources and {len(references)} lists of references make no test set")
    texts = decode(model, tokenizer, sources, decoding, max_source=max_source, encode=encode)
    found = metric.statistics(texts, [list(own) for own in references])
    return Generation(tuple(texts), metric, found, decoding)


def decoding_of(options: DecodingOptions) -> Decoding:
    """How the options ask for texts to be generated."""
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


@dataclass(frozen=True)
class TextTest:
    """How sub-networks of an encoder-decoder are scored by what they write.

    Args:
        metric: One of ``ldsearch.tasks.metrics``.
        decoding: How an answer is found.
        limit: Only the first so many examples of the split are decoded; None: all.
    """

    metric: Metric
    decoding: Decoding = field(default_factory=Decoding)
    limit: int | None = None

    def run(
        self, bench: Bench, subnets: Mapping[str, Subnet], folder: Path
    ) -> Iterator[tuple[str, Statistics]]:
        """Names and statistics, sub-networks with one encoder together, each as soon as it is known.

        Args:
            bench: An encoder-decoder, opened on the split to decode.
            subnets: What to decode, by name.
            folder: Keeps a sub-network's texts as ``<name>.json``; what is there is not decoded again.

        Raises:
            DataError: If the task is no translation or summarisation.
            LdsearchError: If the model cannot decode so.
        """
        task, split = writing_task(bench), bench.evaluator.split
        rows: SequencePairs = task.rows(split)
        sources, references = list(rows.sources)[: self.limit], rows.targets[: self.limit]

        def encoder(name: str) -> str:
            return repr(subnets[name].encoder)

        for alike in (list(names) for _, names in groupby(sorted(subnets, key=encoder), encoder)):
            encode = SharedEncoder(SHARED if len(alike) > 1 else 0)
            for name in alike:
                texts = folder / f"{name}.json"
                if texts.is_file():
                    known = json.loads(texts.read_text(encoding="utf-8"))
                    yield name, self.metric.statistics(known, references)
                    continue
                model = bench.supernet.materialise(subnets[name])
                how = (self.metric, self.decoding, bench.record.reference, encode)
                found = generate(model, bench.tokenizer, sources, references, *how)
                write_json(texts, list(found.texts))
                yield name, found.statistics


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
        found = self._kept.get(key)
        if found is None:
            found = _encoded(model, batch)
            size = sum(tensor.numel() * tensor.element_size() for tensor in found)
            if size <= self.left:
                self.left -= size
                self._kept[key] = found
        hidden, mask = found
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
