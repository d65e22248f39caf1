"""Metrics of generated texts: sacreBLEU's and rouge_score's own corpus scores, resamples too."""

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU

from ldsearch.errors import DataError
from ldsearch.intervals import bootstrap
from ldsearch.tasks.metrics import ROUGE, TOKENISATIONS, bleu, bleu_of_counts, bleu_signature, rouge

WORDS = ["the", "dogs", "dog", "runs", "running", "fast,", "over", "a", "hill.", "U.S.", "don't", "42%", "火"]


def corpus(size: int, seed: int = 0, longest: int = 14) -> tuple[list[str], list[list[str]]]:
    """Texts and one to three noisy copies of each as references; some texts are empty."""
    rng = np.random.default_rng(seed)
    texts, references = [], []
    for _ in range(size):
        words = rng.choice(WORDS, rng.integers(0, longest))
        texts.append(" ".join(words))
        copies = [np.where(rng.random(len(words)) < 0.4, rng.choice(WORDS), words) for _ in range(3)]
        own = [" ".join([*copy, *rng.choice(WORDS, rng.integers(0, 4))]) for copy in copies]
        references.append(own[: rng.integers(1, 4)])
    return texts, references


def sacrebleu(texts: list[str], references: list[list[str]], tokenize: str = "13a") -> float:
    streams = [[own[i] if i < len(own) else None for own in references] for i in range(3)]
    return BLEU(tokenize=tokenize).corpus_score(texts, streams).score


@pytest.mark.parametrize("tokenize", TOKENISATIONS)
def test_bleu_is_sacrebleus(tokenize: str) -> None:
    texts, references = corpus(60)
    metric = bleu(tokenize)
    statistics = metric.statistics(texts, references)
    assert statistics.shape == metric.shape(60) == (60, 10)
    found = float(metric.of_means(statistics.mean(axis=0)))
    assert found == pytest.approx(sacrebleu(texts, references, tokenize), rel=1e-9)
    assert 10 < found < 90
    assert metric.higher_is_better


def test_resampled_rows_score_as_sacrebleu_scores_the_resampled_corpus() -> None:
    texts, references = corpus(12, seed=1, longest=6)
    statistics = bleu().statistics(texts, references)
    draws = np.random.default_rng(2).integers(12, size=(80, 12))
    draws[:12] = np.arange(12)[:, None]  # one sentence twelve times: orders without a match
    found = bleu_of_counts(statistics[draws].mean(axis=1))
    expected = [sacrebleu([texts[i] for i in draw], [references[i] for i in draw]) for draw in draws]
    assert found.shape == (80,)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert 0 < np.sum(found == 0) < 20


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
    found = bleu_of_counts(bleu().statistics(texts, references).mean(axis=0))
    assert float(found) == pytest.approx(sacrebleu(texts, references), rel=1e-9)


def test_bleu_has_an_interval_around_it() -> None:
    texts, references = corpus(40)
    interval = bootstrap([(1.0, bleu().statistics(texts, references))], bleu_of_counts, resamples=300)
    assert interval.mean == pytest.approx(sacrebleu(texts, references), rel=1e-9)
    assert interval.low < interval.mean < interval.high


def test_a_signature_is_what_sacrebleu_says_after_scoring() -> None:
    texts, references = corpus(5)
    for own in (references, [ref[:1] for ref in references], [(ref * 2)[:2] for ref in references]):
        scorer = BLEU(tokenize="intl")
        scorer.corpus_score(texts, [[o[i] if i < len(o) else None for o in own] for i in range(3)])
        assert bleu_signature(own, "intl") == str(scorer.get_signature())
    assert "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp" in bleu_signature([["a", "b"]] * 3)


@pytest.mark.parametrize("name", ROUGE)
def test_rouge_is_the_mean_f1_of_the_best_reference(name: str) -> None:
    texts, references = corpus(40)
    scorer = RougeScorer([name], use_stemmer=True)
    expected = [
        max(scorer.score(reference, text)[name].fmeasure for reference in own)
        for text, own in zip(texts, references, strict=True)
    ]
    metric = rouge(name)
    statistics = metric.statistics(texts, references)
    assert statistics.shape == metric.shape(40) == (40,)
    np.testing.assert_allclose(statistics, expected)
    assert float(metric.of_means(statistics.mean(axis=0))) == pytest.approx(np.mean(expected))
    assert 0.1 < np.mean(expected) < 0.9
    assert metric.higher_is_better


@pytest.mark.parametrize(("name", "expected"), [("rouge1", 6 / 7), ("rouge2", 2 / 5), ("rougeL", 4 / 7)])
def test_rouge_by_hand(name: str, expected: float) -> None:
    # Three of three and four words in common, one pair of two and three, two words in a row of both.
    found = rouge(name).statistics(["the dogs ran"], [["something else", "Ran, the dog slept!"]])
    assert found == pytest.approx([expected])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(DataError, match="no tokenisation '13b': there are 13a, intl"):
        bleu("13b")
    with pytest.raises(DataError, match="no tokenisation 'spm'"):
        bleu_signature([["a"]], "spm")
    with pytest.raises(DataError, match="no metric 'rouge3': there are rouge1, rouge2, rougeL"):
        rouge("rouge3")


def test_texts_and_references_that_differ_in_number_are_refused() -> None:
    for metric in (bleu(), rouge("rouge1")):
        with pytest.raises(ValueError, match="zip"):
            metric.statistics(["a", "b"], [["a"]])
