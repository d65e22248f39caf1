"""Metrics of means against other libraries: on random data, degenerate data and resamples."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    hamming_loss,
    matthews_corrcoef,
    mean_squared_error,
    ndcg_score,
)

from ldsearch.errors import DataError
from ldsearch.tasks.metrics import METRICS, Metric, bleu_of_counts, bleu_signature, metric_named

# scikit-learn's about a confusion matrix of one cell, which Matthews' coefficient takes as it is.
pytestmark = pytest.mark.filterwarnings("ignore:A single label was found:UserWarning")

Theirs = Callable[[np.ndarray, np.ndarray], float]
Draw = Callable[[int, np.random.Generator], tuple[Any, Any]]
NAMED = [(kind, name) for kind, offered in METRICS.items() for name in offered]
EXAMPLES = 60


def score(metric: Metric, predictions: Any, labels: Any) -> float:
    return float(metric.of_means(metric.statistics(predictions, labels).mean(axis=0)))


def f1_of(average: str) -> Theirs:
    return lambda predicted, gold: f1_score(gold, predicted, average=average, zero_division=0)


CLASSIFICATION: dict[str, Theirs] = {
    "accuracy": lambda predicted, gold: accuracy_score(gold, predicted),
    "f1": f1_of("binary"),
    "macro-f1": f1_of("macro"),
    "mcc": lambda predicted, gold: matthews_corrcoef(gold, predicted),
}
MULTI_LABEL: dict[str, Theirs] = {
    "micro-f1": f1_of("micro"),
    "macro-f1": f1_of("macro"),
    "accuracy": lambda predicted, gold: 1 - hamming_loss(gold, predicted),
}


def pearson(predicted: np.ndarray, gold: np.ndarray) -> float:
    """SciPy's, in double precision; 0 for a constant, on which SciPy warns and says NaN."""
    if np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        return 0.0
    return float(pearsonr(predicted.astype(float), gold.astype(float)).statistic)


def draw_ids(labels: int) -> Draw:
    def draw(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        gold = rng.integers(0, labels, examples)
        return np.where(rng.random(examples) < 0.6, gold, rng.integers(0, labels, examples)), gold

    return draw


def draw_numbers(*shape: int) -> Draw:
    def draw(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        gold = rng.normal(0.5, 1.5, (examples, *shape))
        return gold + rng.normal(0.3, 1.0, gold.shape), gold

    return draw


def mean_cosine(predicted: np.ndarray, gold: np.ndarray) -> float:
    return float(np.mean([1 - cosine(p, g) for p, g in zip(predicted, gold, strict=True)]))


def draw_bits(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    gold = (rng.random((examples, 4)) < [0.5, 0.2, 0.1, 0.7]).astype(np.int64)
    return np.where(rng.random((examples, 4)) < 0.8, gold, 1 - gold), gold


def draw_entities(examples: int, rng: np.random.Generator) -> tuple[list[set[Any]], list[set[Any]]]:
    """Sets of (type, start, end); two sides that share about half of what they hold."""

    def some(count: int) -> set[Any]:
        return {(str(rng.choice(["ORG", "PER"])), int(s), int(s) + 1) for s in rng.integers(0, 9, count)}

    shared = [some(rng.integers(0, 4)) for _ in range(examples)]
    return tuple([both | some(rng.integers(0, 3)) for both in shared] for _ in range(2))


def draw_token_ids(examples: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    gold = [rng.integers(0, 3, rng.integers(0, 8)) for _ in range(examples)]
    return [np.where(rng.random(len(row)) < 0.7, row, 0) for row in gold], gold


def draw_nats(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    tokens = rng.integers(0, 12, examples)
    return tokens * rng.uniform(1, 4, examples), tokens


def entity_f1(predicted: Any, gold: Any) -> float:
    """Every entity of either side as one yes-or-no question."""
    pairs = [(e in p, e in g) for p, g in zip(predicted, gold, strict=True) for e in p | g]
    return float(f1_score(*zip(*pairs, strict=True), zero_division=0)) if pairs else 0.0


def token_accuracy(predicted: Any, gold: Any) -> float:
    return float(accuracy_score(np.concatenate(gold), np.concatenate(predicted)))


def by_tokens(nats: np.ndarray, tokens: np.ndarray) -> float:
    """Each token with its example's mean, one after another."""
    each = [n / t for n, t in zip(nats, tokens, strict=True) for _ in range(t)]
    return math.exp(math.fsum(each) / len(each))


def draw_answers(examples: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """Texts of one to six letters, and one to three answers each."""

    def some(count: int) -> list[str]:
        return [" ".join(rng.choice(list("bcdef"), size=rng.integers(1, 7))) for _ in range(count)]

    return some(examples), [some(rng.integers(1, 4)) for _ in range(examples)]


def answer_f1(predicted: list[str], answers: list[list[str]]) -> float:
    """Harmonic mean of precision and recall, word by word."""

    def f1(said: list[str], wanted: list[str]) -> float:
        left, common = list(wanted), 0
        for word in said:
            if word in left:
                left.remove(word)
                common += 1
        precision, recall = common / len(said), common / len(wanted)
        return 2 * precision * recall / (precision + recall) if common else 0.0

    pairs = zip(predicted, answers, strict=True)
    return float(np.mean([max(f1(text.split(), answer.split()) for answer in own) for text, own in pairs]))


WORDS = ["the", "dogs", "dog", "runs", "running", "fast,", "over", "a", "hill.", "U.S.", "don't", "42%", "火"]


def draw_texts(examples: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """Texts and one to three noisy copies of each as references; some texts are empty."""
    texts, references = [], []
    for _ in range(examples):
        words = rng.choice(WORDS, rng.integers(0, 14))
        texts.append(" ".join(words))
        copies = [np.where(rng.random(len(words)) < 0.4, rng.choice(WORDS), words) for _ in range(3)]
        own = [" ".join([*copy, *rng.choice(WORDS, rng.integers(0, 4))]) for copy in copies]
        references.append(own[: rng.integers(1, 4)])
    return texts, references


def streams(references: list[list[str]]) -> list[list[str | None]]:
    return [[own[i] if i < len(own) else None for own in references] for i in range(3)]


def sacrebleu(texts: list[str], references: list[list[str]]) -> float:
    return BLEU().corpus_score(texts, streams(references)).score


def rouge(name: str) -> Any:
    """Mean over texts of the best reference's F1."""
    scorer = RougeScorer([name], use_stemmer=True)

    def theirs(texts: list[str], references: list[list[str]]) -> float:
        pairs = zip(texts, references, strict=True)
        return float(np.mean([max(scorer.score(r, t)[name].fmeasure for r in own) for t, own in pairs]))

    return theirs


def draw_documents(most: int) -> Draw:
    """Scores with ties, and one to three relevant documents of each query, of grades up to ``most``."""

    def draw(examples: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
        counts = rng.integers(2, 25, examples)
        labels = [np.zeros(count) for count in counts]
        for own in labels:
            own[rng.integers(0, len(own), 3)] = rng.integers(1, most + 1, 3)
        return [rng.integers(0, 6, count).astype(float) for count in counts], labels

    return draw


def by_query(theirs: Theirs) -> Any:
    """Mean over queries of what somebody else says of each."""
    return lambda scores, labels: float(np.mean([theirs(*both) for both in zip(scores, labels, strict=True)]))


def first_relevant(scores: np.ndarray, labels: np.ndarray) -> float:
    """1 / rank of the first relevant document, ranked behind its equals, down to the tenth."""
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], labels[at]))
    rank = 1 + next(place for place, at in enumerate(order) if labels[at])
    return 1 / rank if rank <= 10 else 0.0


# For every metric: its labels, data to score, and somebody else's word on it.
CASES: dict[tuple[str, str], tuple[int, Draw, Any]] = {
    **{("classification", name): (4, draw_ids(4), theirs) for name, theirs in CLASSIFICATION.items()},
    ("classification", "f1"): (2, draw_ids(2), CLASSIFICATION["f1"]),
    ("regression", "pearson"): (1, draw_numbers(), pearson),
    ("regression", "mse"): (1, draw_numbers(), lambda p, g: mean_squared_error(g, p)),
    ("embedding", "cosine"): (1, draw_numbers(5), mean_cosine),
    ("ranking", "ndcg@10"): (
        1,
        draw_documents(3),
        by_query(lambda scores, labels: ndcg_score([labels], [scores], k=10)),
    ),
    ("ranking", "mrr@10"): (1, draw_documents(1), by_query(first_relevant)),
    ("ranking", "map"): (
        1,
        draw_documents(1),
        by_query(lambda scores, labels: average_precision_score(labels, scores)),
    ),
    **{("multi-label", name): (4, draw_bits, theirs) for name, theirs in MULTI_LABEL.items()},
    ("tokens", "f1"): (5, draw_entities, entity_f1),
    ("tokens", "accuracy"): (3, draw_token_ids, token_accuracy),
    ("questions", "f1"): (1, draw_answers, answer_f1),
    ("questions", "exact-match"): (
        1,
        draw_answers,
        lambda predicted, answers: np.mean([p in own for p, own in zip(predicted, answers, strict=True)]),
    ),
    ("language-model", "perplexity"): (1, draw_nats, by_tokens),
    ("texts", "bleu"): (1, draw_texts, sacrebleu),
    **{("texts", name): (1, draw_texts, rouge(name)) for name in ("rouge1", "rouge2", "rougeL")},
    ("language-model", "nats"): (1, draw_nats, lambda nats, tokens: math.log(by_tokens(nats, tokens))),
}


def take(values: Any, rows: np.ndarray) -> Any:
    return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_scores_are_those_of_other_libraries_and_so_are_those_of_resampled_means(kind: str, name: str):
    """Many resamples at once and on two leading axes, the last of them one example over and over."""
    labels, draw, theirs = CASES[kind, name]
    metric = metric_named(kind, name, labels)
    assert (metric.name, metric.higher_is_better) == (name, name not in ("mse", "perplexity", "nats"))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        predictions, gold = draw(EXAMPLES, rng)
        statistics = metric.statistics(predictions, gold)
        assert (statistics.shape, statistics.dtype) == (metric.shape(EXAMPLES), np.float64)
        repeats = rng.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), size=6)
        fullest = int(np.argmax(statistics.reshape(EXAMPLES, -1).sum(axis=1)))  # not one without tokens
        repeats[0], repeats[-1] = 1, EXAMPLES * np.eye(EXAMPLES)[fullest]
        scores = metric.of_means((repeats @ statistics / EXAMPLES).reshape(3, 2, *statistics.shape[1:]))
        assert scores.shape == (3, 2)
        for ours, counts in zip(scores.ravel(), repeats, strict=True):
            rows = np.repeat(np.arange(EXAMPLES), counts)
            wanted = theirs(take(predictions, rows), take(gold, rows))
            assert ours == pytest.approx(wanted, rel=1e-9, abs=1e-12)
            assert ours == pytest.approx(float(metric.of_means(counts @ statistics / EXAMPLES)), rel=1e-12)


RARE = [1, 4, 1, 1, 4, 1]  # of seven labels
ONE, ALL = np.eye(1, 15, dtype=int).reshape(5, 3), np.ones((5, 3), int)


@pytest.mark.parametrize(
    ("kind", "labels", "predictions", "gold"),
    [
        ("classification", 2, [0, 0, 0, 0], [0, 1, 1, 0]),  # one prediction
        ("classification", 2, [0, 1, 1, 0], [0, 0, 0, 0]),
        ("classification", 2, [0, 0, 0], [0, 0, 0]),
        ("classification", 2, [1, 1, 1], [1, 1, 1]),
        ("classification", 2, [1, 1, 1], [0, 0, 0]),
        ("classification", 2, [1, 0, 1, 0], [0, 1, 0, 1]),  # all the wrong way round
        ("classification", 2, [1], [1]),
        ("classification", 2, [0], [1]),
        ("classification", 7, [1, 4, 4, 1, 1, 3], RARE),  # labels that are nowhere cost nothing
        ("classification", 7, RARE, RARE),
        *(("multi-label", 3, predictions, gold) for predictions in (ONE, ALL) for gold in (ONE, ALL)),
    ],
)
def test_what_has_no_value_is_what_scikit_learn_makes_of_it(
    kind: str, labels: int, predictions: Any, gold: Any
) -> None:
    for name, theirs in {"classification": CLASSIFICATION, "multi-label": MULTI_LABEL}[kind].items():
        if name != "f1" or labels == 2:
            found = score(metric_named(kind, name, labels), predictions, gold)
            assert found == pytest.approx(theirs(np.array(predictions), np.array(gold))), name


PEARSON = metric_named("regression", "pearson", 1)


def test_a_correlation_survives_any_shift_and_scale():
    predictions, gold = draw_numbers()(500, np.random.default_rng(0))
    expected = pearson(predictions, gold)
    for shift, scale in ((0, 1e-9), (1e6, 1.0), (-1e7, 1e-2), (3, -1e9)):
        found = score(PEARSON, shift + scale * predictions, 2e5 + gold)
        assert found == pytest.approx(math.copysign(1, scale) * expected, abs=1e-7)
    single = score(PEARSON, predictions.astype(np.float32), gold.astype(np.float32))
    assert single == pytest.approx(expected, abs=1e-6)
    for seed in range(30):
        _, few = draw_numbers()(30, np.random.default_rng(seed))
        assert 1 - 1e-9 < score(PEARSON, 3 * few, few) <= 1  # rounding would have it above


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -1 / 3])
def test_a_correlation_with_a_constant_is_zero(value: float):
    constant, varied = np.full(7, value), np.arange(7.0)
    for predictions, gold in ((constant, varied), (varied, constant), (constant, constant), ([value], [1.0])):
        assert score(PEARSON, predictions, gold) == 0.0


def test_a_resample_of_one_example_over_and_over_has_no_correlation_whatever_the_rounding():
    statistics = PEARSON.statistics(*draw_numbers()(200, np.random.default_rng(1)))
    for copies in (3, 7, 200):
        means = np.stack([statistics] * copies).mean(axis=0)
        traces = means[:, 2] - means[:, 0] ** 2
        assert traces.min() < 0 < traces.max()  # which would be divided by as if it were a variance
        assert (PEARSON.of_means(means) == 0).all()


def test_nan_predictions_are_no_score_nor_is_a_perplexity_without_tokens_but_f1_without_entities_is_zero():
    for name in ("pearson", "mse"):
        metric = metric_named("regression", name, 1)
        assert math.isnan(score(metric, [1.0, math.nan, 2.0], [1.0, 2.0, 3.0]))
    assert math.isnan(score(metric_named("language-model", None, 1), [0.0, 0.0], [0, 0]))
    assert score(metric_named("tokens", "f1", 3), [set(), set()], [set(), set()]) == 0.0
    assert score(metric_named("tokens", "accuracy", 3), [[], []], [[], []]) == 0.0


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("tokens", "spearman", "no metric 'spearman' for tokens: --metric takes f1, accuracy$"),
        ("smell", None, "no metrics are registered for 'smell'"),
        ("classification", "f1", "there are 3: --metric macro-f1"),
    ],
)
def test_a_metric_that_there_is_not_is_refused(kind: str, name: str | None, says: str):
    with pytest.raises(DataError, match=says):
        metric_named(kind, name, 3)


@pytest.mark.parametrize("kind", METRICS)
def test_predictions_that_do_not_pair_with_labels_are_refused(kind: str):
    texts = ["a"], [["a"], ["b"]]
    by_example: dict[str, Any] = {"tokens": ([set()], [set(), set()]), "questions": texts, "texts": texts}
    for name in METRICS[kind]:
        with pytest.raises(ValueError, match=r"differ in shape|shorter|longer"):
            metric_named(kind, name, 2).statistics(*by_example.get(kind, (np.zeros((4, 1)), np.zeros(4))))


def test_labels_of_as_many_sentences_but_fewer_words_are_refused():
    with pytest.raises(ValueError, match="differ in shape"):
        metric_named("tokens", "accuracy", 2).statistics([[0, 1]], [[0]])


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("a b c d e f", "a b c d e f"),
        ("a b c x d e", "a b c y d e"),  # no 4-gram in common
        ("a x b y c z", "a b c d e f"),  # no 2-gram
        ("x y z w", "a b c d"),  # nothing
        ("a b c", "a b c"),  # no 4-gram there
        ("", "a b c d"),
        ("a b c d", "a b c d e f g h"),  # brevity
        ("a b c d e f g h", "a b c d"),
    ],
)
@pytest.mark.parametrize("copies", [1, 3])
def test_smoothing_and_brevity_are_sacrebleus(text: str, reference: str, copies: int) -> None:
    texts, references = [text] * copies, [[reference]] * copies
    found = bleu_of_counts(metric_named("texts", "bleu", 1).statistics(texts, references).mean(axis=0))
    assert float(found) == pytest.approx(sacrebleu(texts, references), rel=1e-9)


def test_a_signature_is_sacrebleus_after_scoring() -> None:
    texts, references = draw_texts(5, np.random.default_rng(0))
    for own in (references, [ref[:1] for ref in references], [(ref * 2)[:2] for ref in references]):
        scorer = BLEU()
        scorer.corpus_score(texts, streams(own))
        assert bleu_signature(own) == str(scorer.get_signature())
    assert "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp" in bleu_signature([["a", "b"]] * 3)
