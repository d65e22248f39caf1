"""Scores of generated answers: sacreBLEU's own, for whatever model answers."""

import numpy as np
import pytest
import sacrebleu

from ldsearch.commands.generation import generate
from ldsearch.decoding import Decoding, decode
from ldsearch.errors import DataError
from ldsearch.intervals import paired_bootstrap
from ldsearch.tasks.metrics import bleu, rouge
from tests.translators import sentences, tiny_translator, word_tokenizer

TOKENIZER, SOURCES = word_tokenizer(), sentences(10, seed=4)
DECODING = Decoding(beams=2, min_length=4, max_length=12)


@pytest.fixture(scope="module")
def answers():
    """What the model says, and references that are right about half of it."""
    model = tiny_translator("bart")
    texts = decode(model, TOKENIZER, SOURCES, DECODING, max_source=20)
    noise = sentences(10, seed=5)
    references = [
        [other, text] if row % 2 else [other]
        for row, (text, other) in enumerate(zip(texts, noise, strict=True))
    ]
    return model, texts, references


def test_the_score_is_sacrebleus_of_the_texts(answers):
    model, texts, references = answers
    found = generate(model, TOKENIZER, SOURCES, references, bleu(), DECODING, 20)
    assert found.texts == tuple(texts)
    streams = [[own[0] for own in references], [own[-1] for own in references]]
    expected = sacrebleu.corpus_bleu(texts, streams).score
    assert 5 < expected < 95
    assert found.score.value == pytest.approx(expected, abs=1e-9)
    assert found.score.higher_is_better
    assert found.decoding is DECODING


def test_two_models_are_compared_by_the_bootstrap_of_their_statistics(answers):
    model, _, references = answers
    found = [
        generate(one, TOKENIZER, SOURCES, references, rouge("rougeL"), DECODING, 20).statistics
        for one in (model, tiny_translator("bart", seed=1))
    ]
    assert [statistics.shape for statistics in found] == [(10,), (10,)]
    difference = paired_bootstrap(*found)
    assert difference.mean == pytest.approx(found[0].mean() - found[1].mean())
    # Right about every second answer.
    assert (found[0][1::2] == 1).all()
    assert difference.low > 0
    again = generate(model, TOKENIZER, SOURCES, references, rouge("rougeL"), DECODING, 20).statistics
    assert np.array_equal(again, found[0])


@pytest.mark.parametrize(("sources", "references"), [([], []), (SOURCES, [["a"]])])
def test_what_is_no_test_set_is_refused(answers, sources, references):
    with pytest.raises(DataError, match="make no test set"):
        generate(answers[0], TOKENIZER, sources, references, bleu(), DECODING, 20)
