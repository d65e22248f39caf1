"""SQuAD's scores against hand-computed ones, spans against brute force over every start and end."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from ldsearch.tasks.metrics import exact_match, normalised, token_f1
from ldsearch.tasks.questions import Answer, answer_tokens, best_span


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("The Denver  Broncos!", "denver broncos"),
        ("a  cat, an ant\tand\nthe dog", "cat ant and dog"),
        # Articles are words of their own, and only once punctuation is gone.
        ("theatre another banana", "theatre another banana"),
        ("a-b", "ab"),
        ("the-end", "theend"),
        ("the.", ""),
        ("U.S.A.", "usa"),
        ("24–10", "24–10"),  # noqa: RUF001 (a dash that is no ASCII punctuation stays)
        ("$1,234.5", "12345"),
        ("THE ÉTÉ", "été"),
        ("", ""),
    ],
)
def test_answers_are_compared_without_case_points_articles_and_spaces(text: str, same: str) -> None:
    assert normalised(text) == same


@pytest.mark.parametrize(
    ("predicted", "answers", "exact", "f1"),
    [
        ("Denver Broncos", ["the Denver Broncos."], 1.0, 1.0),
        ("Denver", ["Denver Broncos"], 0.0, 2 / 3),  # precision 1, recall 1/2
        ("in Denver Broncos team", ["Denver Broncos"], 0.0, 2 / 3),  # precision 1/2, recall 1
        ("one two three", ["two three four five"], 0.0, 4 / 7),  # 2/3 and 2/4
        ("x", ["y"], 0.0, 0.0),
        # The best of several.
        ("two three", ["one two", "two three four", "five"], 0.0, 4 / 5),
        ("five", ["one two", "the Five"], 1.0, 1.0),
        # A repeated word counts as often as it is in both.
        ("no no no", ["no"], 0.0, 1 / 2),  # 1/3 and 1
        ("no no", ["no no way"], 0.0, 4 / 5),
        # Order means nothing to F1.
        ("b c", ["c b"], 0.0, 1.0),
        # Version 1.1: equal without a word in common is an exact match, and F1 0.
        ("the", ["The."], 1.0, 0.0),
        ("", ["x"], 0.0, 0.0),
    ],
)
def test_scores_are_those_of_the_official_script(
    predicted: str, answers: list[str], exact: float, f1: float
) -> None:
    assert exact_match(predicted, answers) == exact
    assert token_f1(predicted, answers) == pytest.approx(f1, abs=1e-15)


def every_span(
    logits: NDArray[np.float32], characters: NDArray[np.int32], longest: int
) -> tuple[float, int, int]:
    """Start, then end, in order; only a larger sum replaces one found before."""
    best = (-np.inf, -1, -1)
    for start, end in itertools.product(range(len(logits)), repeat=2):
        valid = start <= end < start + longest and characters[start, 0] >= 0 and characters[end, 0] >= 0
        total = float(logits[start, 0]) + float(logits[end, 1])
        if valid and total > best[0]:
            best = (total, int(characters[start, 0]), int(characters[end, 1]))
    return best


@pytest.mark.parametrize("longest", [1, 2, 5, 30])
@pytest.mark.parametrize("rounded", [False, True])
def test_the_best_span_is_that_of_trying_all(longest: int, rounded: bool) -> None:
    rng = np.random.default_rng(longest)
    for n in (1, 2, 3, 7, 29, 30, 31, 60):
        for _ in range(20):
            logits = rng.normal(size=(n, 2)).astype(np.float32)
            if rounded:  # many ties
                logits = logits.round()
            first = np.arange(n, dtype=np.int32)[:, None] * 3
            characters = np.concatenate([first, first + 2], axis=1)
            characters[rng.random(n) < 0.4] = -1
            characters[0] = (0, 2)
            assert best_span(logits, characters, longest) == every_span(logits, characters, longest)


def test_an_answer_is_at_most_thirty_tokens_long() -> None:
    characters = np.stack([np.arange(40), np.arange(40) + 1], axis=1).astype(np.int32)
    for length, stop in ((30, 35), (31, 6)):
        logits = np.zeros((40, 2), np.float32)
        logits[5, 0], logits[5, 1] = 9, 1
        logits[5 + length - 1, 1] = 8
        assert best_span(logits, characters)[1:] == (5, stop)


def test_what_is_no_context_is_no_answer_whatever_its_logits() -> None:
    characters = np.array([[-1, -1], [-1, -1], [0, 3], [4, 6], [-1, -1]], np.int32)
    for large in (1e9, np.nan):
        logits = np.full((5, 2), large, np.float32)
        logits[2:4] = [[0, 1], [2, 3]]
        assert best_span(logits, characters) == (5, 4, 6)


def test_an_answer_is_the_tokens_that_share_characters_with_it() -> None:
    #                  [CLS]     ab      cd      (zero wide)  fgh     [SEP]
    window = np.array([[-1, -1], [0, 2], [2, 4], [5, 5], [5, 8], [-1, -1]], np.int32)
    for first, stop, tokens in [
        (0, 2, (1, 1)),
        (0, 8, (1, 4)),
        (2, 8, (2, 4)),
        (1, 3, (1, 2)),  # inside of tokens
        (3, 5, (2, 2)),  # a space no token covers
        (4, 6, (3, 4)),  # where no token covers its first character
        (4, 5, (0, 0)),  # nothing but that space
    ]:
        assert answer_tokens([window], Answer(first, "x" * (stop - first))) == [tokens], (first, stop)


def test_only_windows_that_hold_the_whole_answer_have_it() -> None:
    words = np.array([[3 * i, 3 * i + 2] for i in range(8)], np.int32)
    none = np.full((1, 2), -1, np.int32)
    windows = [np.concatenate([none, words[i : i + 4], none]) for i in (0, 2, 4)]
    for first, last in itertools.combinations_with_replacement(range(8), 2):
        found = answer_tokens(windows, Answer(3 * first, "x" * (3 * (last - first) + 2)))
        expected = [
            (first - i + 1, last - i + 1) if i <= first and last < i + 4 else (0, 0) for i in (0, 2, 4)
        ]
        assert found == expected
