"""Metrics, each a function of the mean of per-example statistics, so that every score has its intervals.

A resample of examples so has its exact score, that of generated texts too (BLEU, ROUGE).

A mean of counts is a count over examples, and F1 and its like are ratios that a common factor leaves alone;
Pearson's r needs means, mean squares and mean products. Spearman's correlation is not offered: an example's
rank is a matter of all the others, so it has no statistics of its own and changes with every resample.

What has no value (0/0) is 0, as scikit-learn's ``zero_division=0`` has it; so is a correlation with a
constant, which SciPy calls NaN. NaN in predictions stays NaN.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldsearch.errors import DataError
from ldsearch.registry import Registry
from ldsearch.tasks.order import average_precisions, normalised_gains, reciprocal_ranks
from ldsearch.trials.intervals import OfMeans, Statistics

Array = NDArray[np.float64]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ORDERS = 4  # of BLEU's n-grams


@dataclass(frozen=True)
class Metric:
    """A score as per-example statistics and a function of their mean.

    Args:
        name: As a user writes it.
        statistics: From predictions and labels to one row per example; what they are is the kind of
            task's matter (``METRICS``).
        of_means: Turns mean statistics, shape (..., parts), into scores, shape (...).
        parts: Statistics have shape (examples, parts); None: (examples,), and the score is their mean.
        higher_is_better: The score's direction.
    """

    name: str
    statistics: Callable[[Any, Any], Statistics]
    of_means: OfMeans
    parts: int | None = None
    higher_is_better: bool = True

    def shape(self, examples: int) -> tuple[int, ...]:
        """Shape of the statistics of that many examples."""
        return (examples,) if self.parts is None else (examples, self.parts)


# Takes the number of labels.
Factory = Callable[[int], Metric]


def metric_named(kind: str, name: str | None, labels: int) -> Metric:
    """A metric of a kind of task.

    Args:
        kind: A key of ``METRICS``.
        name: A key there; None takes the first.
        labels: How many labels the task has; 1 where it has none.

    Raises:
        DataError: If the kind has no such metric or none, or the metric is not of so many labels.
    """
    if kind not in METRICS:
        raise DataError(
            f"no metrics are registered for {kind!r}: ldsearch.tasks.metrics.METRICS has {', '.join(METRICS)}"
        )
    offered = METRICS[kind]
    chosen = next(iter(offered)) if name is None else name
    if chosen not in offered:
        raise DataError(f"no metric {chosen!r} for {kind}: --metric takes {', '.join(offered)}")
    return offered[chosen](labels)


def mean(means: Array) -> Array:
    """The score that is a mean itself."""
    return means


def ratio(means: Array) -> Array:
    """One mean over another: shape (..., 2) to (...)."""
    return _divide(means[..., 0], means[..., 1])


def f1(means: Array) -> Array:
    """2·correct / (predicted + gold) of the mean counts (correct, predicted, gold): (..., 3) to (...)."""
    return _divide(2 * means[..., 0], means[..., 1] + means[..., 2])


def f1_of_labels(means: Array, seen: bool = False) -> Array:
    """Mean F1 over labels, 0 for one that is nowhere: (..., 3·labels) to (...).

    Args:
        means: (correct, predicted, gold) of each label.
        seen: Leave out labels that are nowhere, neither gold nor predicted, so that a split or a resample
            that lacks a rare label does not cost a perfect model a share of its score.
    """
    by_label = _by_label(means)
    scores, there = f1(by_label), by_label[..., 1] + by_label[..., 2] != 0
    score: Array = scores.mean(axis=-1)
    return _divide(scores.sum(axis=-1), there.sum(axis=-1).astype(np.float64)) if seen else score


def matthews(means: Array) -> Array:
    """Gorodkin's (2004) R_K, of two labels Matthews' coefficient: (..., 3·labels) to (...).

    It needs no confusion matrix: of that, only the diagonal's sum and both margins count.

    Args:
        means: (correct, predicted, gold) of each label.
    """
    correct, predicted, gold = np.moveaxis(_by_label(means), -1, 0)
    expected = (predicted * gold).sum(axis=-1)
    spreads = (1 - (predicted**2).sum(axis=-1)) * (1 - (gold**2).sum(axis=-1))
    return _divide(correct.sum(axis=-1) - expected, np.sqrt(spreads))


def correlation(means: Array) -> Array:
    """Pearson's r of the means of (x, y, x², y², xy): (..., 5) to (...)."""
    x, y, xx, yy, xy = np.moveaxis(means, -1, 0)
    spread = np.sqrt(_variance(x, xx) * _variance(y, yy))
    return _divide(xy - x * y, spread).clip(-1, 1)


def perplexity(means: Array) -> Array:
    """exp(nats / tokens) of their means: (..., 2) to (...); NaN where there are no tokens."""
    return np.exp(_divide(means[..., 0], means[..., 1], undefined=np.nan))


def correct(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """1 where a label id is right: (examples,); of rows of 0/1 per label, the share that is right."""
    predicted, gold = _paired(predictions, labels)
    share: Statistics = (predicted == gold).reshape(len(gold), -1).mean(axis=1)
    return share


def squared_errors(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """(prediction - label)², shape (examples,)."""
    predicted, gold = _paired(predictions, labels)
    return np.square(predicted.astype(np.float64) - gold.astype(np.float64))


def moments(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """x, y, x², y², xy of predictions x and labels y: (examples, 5).

    A correlation is blind to shift and scale: both are standardised over the examples given, so that no
    digits are lost in the difference of mean square and squared mean.
    """
    x, y = (_standardised(values.astype(np.float64)) for values in _paired(predictions, labels))
    return np.stack([x, y, x * x, y * y, x * y], axis=-1)


def label_counts(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """(correct, predicted, gold) of each label, one label after another, from 0/1: (examples, 3·labels)."""
    predicted, gold = (values.astype(bool) for values in _paired(predictions, labels))
    counts = np.stack([predicted & gold, predicted, gold], axis=-1).astype(np.float64)
    return counts.reshape(len(gold), -1)


def summed_label_counts(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """(correct, predicted, gold) of all labels together, from 0/1: (examples, 3)."""
    counts: Statistics = label_counts(predictions, labels).reshape(len(np.asarray(labels)), -1, 3).sum(axis=1)
    return counts


def entity_counts(predictions: Sequence[Set[Hashable]], labels: Sequence[Set[Hashable]]) -> Statistics:
    """(correct, predicted, gold) of each example's set of entities: (examples, 3)."""
    pairs = zip(predictions, labels, strict=True)
    rows = [(len(found & gold), len(found), len(gold)) for found, gold in pairs]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def token_counts(predictions: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> Statistics:
    """(correct, tokens) of each example's label ids, one per labelled token: (examples, 2)."""
    pairs = [_paired(*both) for both in zip(predictions, labels, strict=True)]
    rows = [((found == gold).sum(), len(gold)) for found, gold in pairs]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def nats_and_tokens(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """Summed negative log-likelihoods, and the number of tokens they are of: (examples, 2)."""
    return np.stack(_paired(predictions, labels), axis=-1).astype(np.float64)


def normalised(answer: str) -> str:
    """Normalise as SQuAD's official script: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """SQuAD's exact match (Rajpurkar et al. 2016): 1 if the prediction equals an answer, both normalised."""
    return float(normalised(predicted) in {normalised(answer) for answer in answers})


def token_f1(predicted: str, answers: Sequence[str]) -> float:
    """SQuAD's F1 of the normalised words in common with the best answer; 0 if there are none in common.

    Where the only answer is empty, nothing is right and all else wrong (v2, Rajpurkar et al. 2018).
    """
    said = Counter(normalised(predicted).split())
    if not any(answers):
        return float(not said)
    wanted = [Counter(normalised(answer).split()) for answer in answers]
    return max(2 * (said & words).total() / max(1, said.total() + words.total()) for words in wanted)


def _for_each(score: Callable[[str, Sequence[str]], float]) -> Callable[..., Statistics]:
    """Statistics of shape (examples,) from predicted texts and each example's answers."""
    return lambda predicted, answers: np.array(
        [score(*both) for both in zip(predicted, answers, strict=True)], dtype=np.float64
    )


def bleu() -> Metric:
    """Corpus BLEU in percent (Papineni et al. 2002), as sacreBLEU computes it (Post 2018).

    Predictions are texts, labels one or more references of each. The statistics, shape (examples, 10), are
    the lengths of text and closest reference in words, the matches and the numbers of n-grams for n = 1 to 4,
    all times the number of examples: their means are the counts of the corpus, which smoothing needs.
    """
    from sacrebleu.metrics.bleu import BLEU  # these packages take long to load

    # The counts are those of any order; the setting avoids a warning for each sentence.
    scorer = BLEU(effective_order=True)

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


def bleu_signature(references: Sequence[Sequence[str]]) -> str:
    """SacreBLEU's signature of a score on so many references (Post 2018)."""
    from sacrebleu.metrics.bleu import BLEU

    # Only the number of references matters here; None, which the types leave out, is a missing one.
    most = max(len(own) for own in references)
    streams: Any = [["" if index < len(own) else None for own in references] for index in range(most)]
    return str(BLEU(references=streams).get_signature())


def rouge(name: str) -> Metric:
    """Mean F1 (0 to 1) of words or word pairs in common, or of the longest common subsequence (Lin 2004).

    Predictions are texts, labels one or more references of each, of which the best counts. Words are stemmed
    (Porter), lower-cased runs of a-z and 0-9: other scripts have none. rougeL takes a text as one sentence.

    Args:
        name: ``"rouge1"``, ``"rouge2"`` or ``"rougeL"``.
    """
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([name], use_stemmer=True)

    def statistics(texts: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        pairs = zip(texts, references, strict=True)
        return np.array([scorer.score_multi(own, text)[name].fmeasure for text, own in pairs], np.float64)

    return Metric(name, statistics, mean)


def _of_classes(name: str, of_means: OfMeans, labels: int) -> Metric:
    """A metric of the counts of each label, from label ids."""

    def statistics(predictions: ArrayLike, gold: ArrayLike) -> Statistics:
        one_hot = (ids[:, None] == np.arange(labels) for ids in _paired(predictions, gold))
        return label_counts(*one_hot)

    return Metric(name, statistics, of_means, 3 * labels)


def _f1_of_two(labels: int) -> Metric:
    if labels != 2:
        raise DataError(f"f1 is of the second of two labels, there are {labels}: --metric macro-f1")
    return _of_classes("f1", lambda means: f1(means[..., 3:]), 2)


def _likelihood(name: str, of_means: OfMeans) -> Metric:
    return Metric(name, nats_and_tokens, of_means, 2, higher_is_better=False)


def cosines(predictions: ArrayLike, labels: ArrayLike) -> Statistics:
    """Cosine of each predicted vector to its label, shape (examples,); 0 of a vector of zeros."""
    ours, theirs = _paired(predictions, labels)
    norms = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
    return _divide((ours * theirs).sum(axis=-1), norms)


# Kinds of task, and what predictions and labels are there; the first metric is the default.
_METRICS: Mapping[str, Mapping[str, Factory]] = {
    # Label ids, shape (examples,).
    "classification": {
        "accuracy": lambda _: Metric("accuracy", correct, mean),
        "f1": _f1_of_two,
        "macro-f1": partial(_of_classes, "macro-f1", partial(f1_of_labels, seen=True)),
        "mcc": partial(_of_classes, "mcc", matthews),
    },
    # Numbers, shape (examples,).
    "regression": {
        "pearson": lambda _: Metric("pearson", moments, correlation, 5),
        "mse": lambda _: Metric("mse", squared_errors, mean, higher_is_better=False),
    },
    # Vectors, shape (examples, width).
    "embedding": {"cosine": lambda _: Metric("cosine", cosines, mean)},
    # Per example: its documents' scores, and their labels.
    "ranking": {
        "ndcg@10": lambda _: Metric("ndcg@10", normalised_gains, mean),
        "mrr@10": lambda _: Metric("mrr@10", reciprocal_ranks, mean),
        "map": lambda _: Metric("map", average_precisions, mean),
    },
    # 0 and 1, shape (examples, labels).
    "multi-label": {
        "micro-f1": lambda _: Metric("micro-f1", summed_label_counts, f1, 3),
        "macro-f1": lambda labels: Metric("macro-f1", label_counts, f1_of_labels, 3 * labels),
        "accuracy": lambda _: Metric("accuracy", correct, mean),
    },
    # Per example: a set of entities for f1, label ids of the labelled tokens for accuracy.
    "tokens": {
        "f1": lambda _: Metric("f1", entity_counts, f1, 3),
        "accuracy": lambda _: Metric("accuracy", token_counts, ratio, 2),
    },
    # Per example: the predicted text, and the answers.
    "questions": {
        "f1": lambda _: Metric("f1", _for_each(token_f1), mean),
        "exact-match": lambda _: Metric("exact-match", _for_each(exact_match), mean),
    },
    # Per example: summed negative log-likelihood in nats as prediction, number of tokens as label.
    "language-model": {
        "perplexity": lambda _: _likelihood("perplexity", perplexity),
        # Per token; its mean over models is not ruled by the worst of them.
        "nats": lambda _: _likelihood("nats", ratio),
    },
    # Per example: a generated text, and the references.
    "texts": {
        "bleu": lambda _: bleu(),
        "rouge1": lambda _: rouge("rouge1"),
        "rouge2": lambda _: rouge("rouge2"),
        "rougeL": lambda _: rouge("rougeL"),
    },
}
METRICS: Registry[Mapping[str, Factory]] = Registry("metrics", _METRICS)


def _paired(predictions: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    predicted, gold = np.asarray(predictions), np.asarray(labels)
    if predicted.shape != gold.shape:
        raise ValueError(f"predictions {predicted.shape} and labels {gold.shape} differ in shape")
    return predicted, gold


def _by_label(means: Array) -> Array:
    return means.reshape(*means.shape[:-1], -1, 3)


def _standardised(values: Array) -> Array:
    centred = values - values.mean()
    standardised: Array = centred / (centred.std() or 1.0)
    return standardised


def _variance(mean: Array, mean_square: Array) -> Array:
    """Exactly 0 where all values are one: rounding leaves a trace of either sign."""
    variance = mean_square - mean**2
    return np.where(variance < 1e-12 * mean_square, 0.0, variance)


def _divide(above: Array, below: Array, undefined: float = 0.0) -> Array:
    return np.divide(above, below, out=np.full_like(above, undefined), where=below != 0)
