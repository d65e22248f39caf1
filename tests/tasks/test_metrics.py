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


def draw_numbers(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    gold = rng.normal(2.5, 1.5, examples)
    return gold + rng.normal(0.3, 1.0, examples), gold


def draw_vectors(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    gold = rng.normal(0.1, 1.0, (examples, 5))
    return gold + rng.normal(0, 0.7, (examples, 5)), gold


def mean_cosine(predicted: np.ndarray, gold: np.ndarray) -> float:
    return float(np.mean([1 - cosine(p, g) for p, g in zip(predicted, gold, strict=True)]))


def draw_bits(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    gold = (rng.random((examples, 4)) < [0.5, 0.2, 0.1, 0.7]).astype(np.int64)
    return np.where(rng.random((examples, 4)) < 0.8, gold, 1 - gold), gold


def draw_entities(examples: int, rng: np.random.Generator) -> tuple[list[set[Any]], list[set[Any]]]:
    """Sets of (type, start, end); two sides that share about half of what they hold."""

    def some(count: int) -> set[Any]:
        return {
            ("ORG" if rng.random() < 0.5 else "PER", int(s), int(s) + 1) for s in rng.integers(0, 9, count)
        }

    shared = [some(rng.integers(0, 4)) for _ in range(examples)]
    return tuple([both | some(rng.integers(0, 3)) for both in shared] for _ in range(2))


def draw_token_ids(examples: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    gold = [rng.integers(0, 3, rng.integers(0, 8)) for _ in range(examples)]
    return [np.where(rng.random(len(row)) < 0.7, row, 0) for row in gold], gold


def draw_nats(examples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    tokens = rng.integers(0, 12, examples)
    return tokens * rng.uniform(1, 4, examples), tokens


def bits_of_entities(predicted: list[set[Any]], gold: list[set[Any]]) -> tuple[list[int], list[int]]:
    """Every entity of either side as one yes-or-no question."""
    pairs = [(e in p, e in g) for p, g in zip(predicted, gold, strict=True) for e in sorted(p | g)]
    return [int(p) for p, _ in pairs], [int(g) for _, g in pairs]


def entity_f1(predicted: Any, gold: Any) -> float:
    found, there = bits_of_entities(predicted, gold)
    return float(f1_score(there, found, zero_division=0)) if there else 0.0


def token_accuracy(predicted: Any, gold: Any) -> float:
    return float(accuracy_score(np.concatenate(gold), np.concatenate(predicted)))


def by_tokens(nats: np.ndarray, tokens: np.ndarray) -> float:
    """Each token with its example's mean, one after another."""
    each = [n / t for n, t in zip(nats, tokens, strict=True) for _ in range(t)]
    return math.exp(math.fsum(each) / len(each))


def draw_answers(examples: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """Texts of one to six letters, and one to three answers each."""

    def text() -> str:
        return " ".join(rng.choice(list("bcdef"), size=rng.integers(1, 7)))

    return [text() for _ in range(examples)], [
        [text() for _ in range(rng.integers(1, 4))] for _ in range(examples)
    ]


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


def sacrebleu(texts: list[str], references: list[list[str]]) -> float:
    streams = [[own[i] if i < len(own) else None for own in references] for i in range(3)]
    return BLEU().corpus_score(texts, streams).score


def rouge(name: str) -> Any:
    """Mean over texts of the best reference's F1."""
    scorer = RougeScorer([name], use_stemmer=True)

    def theirs(texts: list[str], references: list[list[str]]) -> float:
        pairs = zip(texts, references, strict=True)
        return float(np.mean([max(scorer.score(r, t)[name].fmeasure for r in own) for t, own in pairs]))

    return theirs


def draw_documents(examples: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores with ties, and one to three relevant documents of each query."""
    scores, labels = [], []
    for count in rng.integers(2, 25, examples):
        scores.append(rng.integers(0, 6, count).astype(float))
        labels.append(np.zeros(count))
        labels[-1][rng.integers(0, count, 3)] = 1
    return scores, labels


def by_query(theirs: Theirs) -> Any:
    """Mean over queries of what somebody else says of each."""
    return lambda scores, labels: float(np.mean([theirs(*both) for both in zip(scores, labels, strict=True)]))


def first_relevant(scores: np.ndarray, labels: np.ndarray) -> float:
    """1 / rank of the first relevant document, ranked behind its equals, down to the tenth."""
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], labels[at]))
    rank = 1 + next(place for place, at in enumerate(order) if labels[at])
    return 1 / rank if rank <= 10 else 0.0


RANKING: dict[str, Theirs] = {
    "ndcg@10": lambda scores, labels: ndcg_score([labels], [scores], k=10),
    "mrr@10": first_relevant,
    "map": lambda scores, labels: average_precision_score(labels, scores),
}


# For every metric: its labels, data to score, and somebody else's word on it.
CASES: dict[tuple[str, str], tuple[int, Draw, Any]] = {
    **{("classification", name): (4, draw_ids(4), theirs) for name, theirs in CLASSIFICATION.items()},
    ("classification", "f1"): (2, draw_ids(2), CLASSIFICATION["f1"]),
    ("regression", "pearson"): (1, draw_numbers, pearson),
    ("regression", "mse"): (1, draw_numbers, lambda p, g: mean_squared_error(g, p)),
    ("embedding", "cosine"): (1, draw_vectors, mean_cosine),
    **{("ranking", name): (1, draw_documents, by_query(theirs)) for name, theirs in RANKING.items()},
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


def test_every_metric_has_a_case():
    assert set(CASES) == set(NAMED)


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_scores_are_those_of_other_libraries_and_statistics_have_the_promised_shape(kind: str, name: str):
    labels, draw, theirs = CASES[kind, name]
    metric = metric_named(kind, name, labels)
    assert metric.name == name
    assert metric.higher_is_better == (name not in ("mse", "perplexity", "nats"))
    for seed in range(5):
        predictions, gold = draw(EXAMPLES, np.random.default_rng(seed))
        statistics = metric.statistics(predictions, gold)
        assert (statistics.shape, statistics.dtype) == (metric.shape(EXAMPLES), np.float64)
        found = float(metric.of_means(statistics.mean(axis=0)))
        assert found == pytest.approx(theirs(predictions, gold), rel=1e-9, abs=1e-12)


def take(values: Any, rows: np.ndarray) -> Any:
    return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_scores_of_resampled_means_are_the_scores_of_resampled_examples(kind: str, name: str):
    """Many resamples at once and on two leading axes, the last of them one example over and over."""
    labels, draw, theirs = CASES[kind, name]
    rng = np.random.default_rng(7)
    predictions, gold = draw(EXAMPLES, rng)
    metric = metric_named(kind, name, labels)
    statistics = metric.statistics(predictions, gold)
    repeats = rng.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), size=12)
    fullest = int(np.argmax(statistics.reshape(EXAMPLES, -1).sum(axis=1)))  # not one without tokens
    repeats[-1] = EXAMPLES * np.eye(EXAMPLES)[fullest]
    scores = metric.of_means((repeats @ statistics / EXAMPLES).reshape(3, 4, *statistics.shape[1:]))
    assert scores.shape == (3, 4)
    for ours, counts in zip(scores.ravel(), repeats, strict=True):
        rows = np.repeat(np.arange(EXAMPLES), counts)
        assert ours == pytest.approx(theirs(take(predictions, rows), take(gold, rows)), rel=1e-9, abs=1e-12)
        assert ours == pytest.approx(float(metric.of_means(counts @ statistics / EXAMPLES)), rel=1e-12)


@pytest.mark.parametrize("name", CLASSIFICATION)
@pytest.mark.parametrize(
    ("predictions", "gold"),
    [
        pytest.param([0, 0, 0, 0], [0, 1, 1, 0], id="one prediction"),
        pytest.param([0, 1, 1, 0], [0, 0, 0, 0], id="one gold label"),
        pytest.param([0, 0, 0], [0, 0, 0], id="nothing but 0"),
        pytest.param([1, 1, 1], [1, 1, 1], id="nothing but 1"),
        pytest.param([1, 1, 1], [0, 0, 0], id="all wrong"),
        pytest.param([1, 0, 1, 0], [0, 1, 0, 1], id="all the wrong way round"),
        pytest.param([1], [1], id="one example"),
        pytest.param([0], [1], id="one wrong example"),
    ],
)
def test_what_has_no_value_is_what_scikit_learn_makes_of_it(name: str, predictions: Any, gold: Any):
    theirs = CLASSIFICATION[name](np.array(predictions), np.array(gold))
    assert score(metric_named("classification", name, 2), predictions, gold) == pytest.approx(theirs)


@pytest.mark.parametrize("name", ["macro-f1", "mcc", "accuracy"])
def test_labels_that_are_nowhere_cost_nothing(name: str):
    predictions, gold = np.array([1, 4, 4, 1, 1, 3]), np.array([1, 4, 1, 1, 4, 1])
    found = score(metric_named("classification", name, 7), predictions, gold)
    assert found == pytest.approx(CLASSIFICATION[name](predictions, gold))
    assert score(metric_named("classification", name, 7), gold, gold) == pytest.approx(1.0)


@pytest.mark.parametrize("name", MULTI_LABEL)
@pytest.mark.parametrize(("predicted", "gold"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_labels_nobody_has_count_as_scikit_learn_counts_them(name: str, predicted: int, gold: int):
    shape = (5, 3)
    predictions, labels = np.full(shape, predicted), np.full(shape, gold)
    labels[0, 0] = predictions[0, 0] = 1
    found = score(metric_named("multi-label", name, 3), predictions, labels)
    assert found == pytest.approx(MULTI_LABEL[name](predictions, labels))


def test_a_correlation_survives_any_shift_and_scale():
    rng = np.random.default_rng(0)
    predictions, gold = draw_numbers(500, rng)
    expected = pearson(predictions, gold)
    pearsons = metric_named("regression", "pearson", 1)
    for shift, scale in ((0, 1e-9), (1e6, 1.0), (-1e7, 1e-2), (3, -1e9)):
        found = score(pearsons, shift + scale * predictions, 2e5 + gold)
        assert found == pytest.approx(math.copysign(1, scale) * expected, abs=1e-7)
    single = predictions.astype(np.float32)
    assert score(pearsons, single, gold.astype(np.float32)) == pytest.approx(expected, abs=1e-6)
    assert score(pearsons, gold, gold) == pytest.approx(1.0)
    for seed in range(30):
        _, few = draw_numbers(30, np.random.default_rng(seed))
        assert score(pearsons, 3 * few, few) <= 1  # rounding would have it above


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, -1 / 3])
def test_a_correlation_with_a_constant_is_zero(value: float):
    pearsons = metric_named("regression", "pearson", 1)
    constant, varied = np.full(7, value), np.arange(7.0)
    for predictions, gold in ((constant, varied), (varied, constant), (constant, constant)):
        assert score(pearsons, predictions, gold) == 0.0
    assert score(pearsons, [value], [1.0]) == 0.0


def test_a_resample_of_one_example_over_and_over_has_no_correlation_whatever_the_rounding():
    pearsons = metric_named("regression", "pearson", 1)
    statistics = pearsons.statistics(*draw_numbers(200, np.random.default_rng(1)))
    for copies in (3, 7, 200):
        means = np.stack([statistics] * copies).mean(axis=0)
        traces = means[:, 2] - means[:, 0] ** 2
        assert (traces > 0).any()  # which would be divided by as if it were a variance
        assert (traces < 0).any()
        assert (pearsons.of_means(means) == 0).all()


@pytest.mark.parametrize("name", ["pearson", "mse"])
def test_nan_predictions_are_no_score(name: str):
    metric = metric_named("regression", name, 1)
    assert math.isnan(score(metric, [1.0, math.nan, 2.0], [1.0, 2.0, 3.0]))


def test_without_entities_f1_is_zero_and_without_tokens_there_is_no_perplexity():
    nothing: list[set[Any]] = [set(), set()]
    assert score(metric_named("tokens", "f1", 3), nothing, nothing) == 0.0
    assert score(metric_named("tokens", "accuracy", 3), [[], []], [[], []]) == 0.0
    assert math.isnan(score(metric_named("language-model", None, 1), [0.0, 0.0], [0, 0]))


@pytest.mark.parametrize("kind", METRICS)
def test_the_first_metric_is_the_default_and_a_stranger_is_answered_with_the_names(kind: str):
    defaults = {
        "classification": "accuracy",
        "regression": "pearson",
        "embedding": "cosine",
        "ranking": "ndcg@10",
        "multi-label": "micro-f1",
        "tokens": "f1",
        "questions": "f1",
        "language-model": "perplexity",
        "texts": "bleu",
    }
    assert metric_named(kind, None, 2).name == defaults[kind]
    with pytest.raises(DataError, match="no metric 'spearman'") as caught:
        metric_named(kind, "spearman", 2)
    assert str(caught.value).endswith(": --metric takes " + ", ".join(METRICS[kind]))
    with pytest.raises(DataError, match="no metrics are registered for 'smell'"):
        metric_named("smell", None, 2)


def test_f1_of_more_than_two_labels_is_refused():
    with pytest.raises(DataError, match="there are 3: --metric macro-f1"):
        metric_named("classification", "f1", 3)


@pytest.mark.parametrize(
    ("kind", "name"), [key for key in NAMED if key[0] not in ("tokens", "questions", "texts")]
)
def test_predictions_that_do_not_pair_with_labels_are_refused(kind: str, name: str):
    metric = metric_named(kind, name, 2)
    with pytest.raises(ValueError, match="differ in shape"):
        metric.statistics(np.zeros((4, 1)), np.zeros(4))


def test_sentences_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="differ in shape"):
        metric_named("tokens", "accuracy", 2).statistics([[0, 1]], [[0]])
    two, texts = [set(), set()], [["a"], ["b"]]
    for kind, one, examples in (("tokens", set(), two), ("questions", "a", texts), ("texts", "a", texts)):
        for name in METRICS[kind]:
            with pytest.raises(ValueError, match=r"shorter|longer"):
                metric_named(kind, name, 2).statistics([one], examples)


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
        scorer.corpus_score(texts, [[o[i] if i < len(o) else None for o in own] for i in range(3)])
        assert bleu_signature(own) == str(scorer.get_signature())
    assert "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp" in bleu_signature([["a", "b"]] * 3)
