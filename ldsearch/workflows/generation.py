"""Generated answers of a model, and what a metric makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedTokenizerBase

from ldsearch.decoding import Decoding, decode
from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.base import score
from ldsearch.tasks.metrics import Metric
from ldsearch.trial import Score


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
        """Of the corpus."""
        return score(self.metric, self.statistics)


def generate(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    metric: Metric,
    decoding: Decoding,
    max_source: int,
) -> Generation:
    """Decode sources and compare the answers with references.

    Args:
        model: An encoder-decoder; for a sub-network what ``Supernet.materialise`` gives.
        tokenizer: The model's.
        sources: What is to be translated or summarised.
        references: One good answer or several of each.
        metric: One of ``ldsearch.tasks.text_metrics``.
        decoding: How an answer is found.
        max_source: Sources are cut to so many tokens.

    Raises:
        DataError: If there are no sources, or as many references, or a source has no tokens.
        LdsearchError: If the model cannot decode so.
    """
    if not sources or len(sources) != len(references):
        raise DataError(f"{len(sources)} sources and {len(references)} lists of references make no test set")
    texts = decode(model, tokenizer, sources, decoding, max_source=max_source)
    found = metric.statistics(texts, [list(own) for own in references])
    return Generation(tuple(texts), metric, found, decoding)
