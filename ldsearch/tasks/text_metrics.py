"""Metrics of generated texts, from per-sentence statistics: sacreBLEU's BLEU, and ROUGE.

As in ``metrics``, a score is a function of mean statistics, so a resample of sentences has its exact score.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU

from ldsearch.errors import DataError
from ldsearch.intervals import Statistics
from ldsearch.tasks.metrics import Array, Metric, mean

_ORDERS = 4
# Those of sacreBLEU that need no download and no other package.
TOKENISATIONS = ("13a", "intl", "zh", "char", "none")
ROUGE = ("rouge1", "rouge2", "rougeL")


def bleu(tokenize: str = "13a") -> Metric:
    """Corpus BLEU in percent (Papineni et al. 2002), as sacreBLEU computes it (Post 2018).

    Predictions are texts, labels one or more references of each. The statistics, shape (examples, 10), are
    the lengths of text and closest reference in words, the matches and the numbers of n-grams for n = 1 to 4,
    all times the number of examples: their means are the counts of the corpus, which smoothing needs.

    Args:
        tokenize: One of ``TOKENISATIONS``.

    Raises:
        DataError: If there is no such tokenisation.
    """
    # The counts are those of any order; the setting spares a warning for each sentence.
    scorer = BLEU(tokenize=_offered(tokenize, TOKENISATIONS, "tokenisation"), effective_order=True)

    def statistics(texts: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        rows = []
        for text, own in zip(texts, references, strict=True):
            found = scorer.sentence_score(text, own)
            rows.append((found.sys_len, found.ref_len, *found.counts, *found.totals))
        return len(rows) * np.array(rows, dtype=np.float64)

    return Metric("bleu", statistics, bleu_of_counts, 2 + 2 * _ORDERS)


def bleu_of_counts(counts: Array) -> Array:
    """BLEU in percent from a corpus's counts, as ``bleu`` orders them: (..., 10) to (...).

    Brevity penalty and "exp" smoothing as sacreBLEU has them: the first order without a match counts half a
    match, the next a quarter. Without any match at all, or without any 4-gram, it is 0.
    """
    length, closest = counts[..., 0], counts[..., 1]
    matches, totals = np.split(counts[..., 2:], 2, axis=-1)
    unmatched = matches == 0
    smoothed = np.where(unmatched, 0.5 ** np.cumsum(unmatched, axis=-1), matches)
    scored = ~unmatched.all(axis=-1) & (totals > 0).all(axis=-1)
    precisions = np.divide(smoothed, totals, out=np.ones_like(totals), where=totals > 0)
    shortfall = np.divide(closest, length, out=np.ones_like(length), where=length > 0) - 1
    logs = np.log(precisions).mean(axis=-1) - np.maximum(shortfall, 0)
    return np.where(scored, 100 * np.exp(logs), 0.0)


def bleu_signature(references: Sequence[Sequence[str]], tokenize: str = "13a") -> str:
    """What sacreBLEU says of how a score came about (Post 2018), to be printed beside it.

    Args:
        references: One or more of each text; their number is part of it.
        tokenize: As for ``bleu``.

    Raises:
        DataError: If there is no such tokenisation.
    """
    _offered(tokenize, TOKENISATIONS, "tokenisation")
    # The number of references is all that counts here; None, which the types forget, is a missing one.
    most = max(len(own) for own in references)
    streams: Any = [["" if index < len(own) else None for own in references] for index in range(most)]
    return str(BLEU(tokenize=tokenize, references=streams).get_signature())


def rouge(name: str) -> Metric:
    """Mean F1 (0 to 1) of words or word pairs in common, or of the longest common subsequence (Lin 2004).

    Predictions are texts, labels one or more references of each, of which the best counts. Words are stemmed
    (Porter), lower-cased runs of a-z and 0-9: other scripts have none. rougeL takes a text as one sentence.

    Args:
        name: One of ``ROUGE``.

    Raises:
        DataError: If there is no such metric.
    """
    scorer = RougeScorer([_offered(name, ROUGE, "metric")], use_stemmer=True)

    def statistics(texts: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        pairs = zip(texts, references, strict=True)
        return np.array([scorer.score_multi(own, text)[name].fmeasure for text, own in pairs], np.float64)

    return Metric(name, statistics, mean)


# By the names that a user writes; what is measured is decoded text.
TEXT_METRICS: Mapping[str, Callable[[], Metric]] = MappingProxyType(
    {"bleu": bleu, **{name: partial(rouge, name) for name in ROUGE}}
)


def _offered(name: str, names: Sequence[str], kind: str) -> str:
    if name not in names:
        raise DataError(f"no {kind} {name!r}: there are {', '.join(names)}")
    return name
