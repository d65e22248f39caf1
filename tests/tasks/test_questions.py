"""Question answering: windows that lose no token, spans against brute force, SQuAD's scores by hand."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from ldsearch.tasks import questions as module
from ldsearch.tasks.metrics import exact_match, normalised, token_f1
from ldsearch.tasks.questions import Answer, QuestionAnswering, answer_tokens, best_span
from ldsearch.tasks.tables import DataSource
from tests.tasks.question_rows import (
    Rows,
    byte_level_tokenizer,
    examples_of,
    planted,
    row,
    rows_about,
    task_of,
    wordpiece_tokenizer,
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return wordpiece_tokenizer()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return rows_about(12)


def test_questions_of_one_context_are_never_on_two_sides() -> None:
    train, held = (pd.DataFrame(rows_about(count, length=12, seed=count)) for count in (40, 20))
    task = QuestionAnswering.of_tables({"train": train, "search": held}, DataSource("rows"))
    cut = QuestionAnswering.of_tables({"train": train}, DataSource("rows"))
    for own, sizes, contexts in ((task, [120, 30, 30], 60), (cut, [96, 12, 12], 40)):
        assert [len(split) for split in own.splits.values()] == sizes
        sides = [set(split.contexts) for split in own.splits.values()]
        assert sum(map(len, sides)) == len(set().union(*sides)) == contexts
        assert own.overlap == ""
    assert set(task.splits["train"].contexts) == set(train["context"])


GOOD = rows_about(20, length=12)
ASTRAY = "rows have an answer that does not stand at its answer_start"


def answered(*answers: Any) -> dict[str, Any]:
    """A row with texts and the characters at which they start, or with whatever is no answer."""
    row = {"context": "x é yes", "question": "q"}
    return {**row, "answers": dict(zip(("text", "answer_start"), answers, strict=True))}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([{**GOOD[0], "question": " "}], "1 train rows have no question"),
        ([{**GOOD[0], "answers": None}], "1 train rows have no answer"),
        ([answered([""], [0])], "1 train rows have no answer"),
        ([answered(["yes"], [3])] * 3, f"3 train {ASTRAY}"),
        ([answered(["yes", "x"], [4, 1])], f"1 train {ASTRAY}"),
        ([answered(["yes"], [-3])], f"1 train {ASTRAY}"),
        ([answered(["yes"], [5])], ASTRAY),  # in bytes
        ([answered(3, 4)], "must hold a list text"),
        ([answered(["x", "yes"], [0])], "as long a list answer_start"),
        ([answered(["x"], [0.5])], "whole numbers"),
        ([answered([3], [0])], "list text"),
        # Nowhere in the context, or in several places.
        (
            [{**GOOD[0], "answers": own} for own in ("yes", "a")],
            "2 train rows have an answer that stands not",
        ),
        ([{**GOOD[0], "answers": [3]}], r"must hold a list text .* not '\[3\]'"),
    ],
)
def test_data_that_does_not_fit_is_refused(bad: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(DataError, match=says):
        QuestionAnswering.of_tables({"train": pd.DataFrame([*GOOD, *bad])}, DataSource("rows"))


@pytest.mark.parametrize(("metric", "reference"), [("f1", 64), ("exact-match", 512)])
def test_a_model_that_knows_the_answers_is_always_right(
    rows: Rows, metric: str, reference: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 7)  # more rows than are tokenised at once
    context = f"{'jade ' * 30}Zoë naïve 日本語 😀 24–10, “face” é"  # noqa: RUF001
    foreign = [row(context, "q", answer) for answer in ("naïve", "日本語", "😀", "24–10", "“face”", "é")]  # noqa: RUF001
    pieces, letters = wordpiece_tokenizer(), byte_level_tokenizer(examples_of(rows).texts)
    for tokenizer, own in ((pieces, rows), (letters, [*rows, *foreign])):
        task = task_of(own, metric)
        encoded = task.encode("train", tokenizer, reference)
        outputs = planted(encoded)
        assert task.statistics(outputs, encoded).tolist() == [1.0] * len(own)
        wanted = [row["answers"]["text"][0] for row in own]
        assert [text.strip() for text in task.predict(outputs, encoded)] == wanted
        # One that sees them at the other end is not.
        mirrored = [logits[::-1] for logits in outputs]
        assert task.statistics(mirrored, encoded).mean() < 0.5


def test_each_example_has_its_own_statistic(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [row("bad, face, cage", "a", answer) for answer in ("bad", "face", "cage")]
    rows[1]["answers"] = {"text": ["bad, face", "face, cage"], "answer_start": [0, 5]}
    for metric, wrong, part in (("f1", 0.0, 2 / 3), ("exact-match", 0.0, 0.0)):
        task = task_of(rows, metric)
        encoded = task.encode("train", tokenizer, 64)
        outputs = planted(encoded)
        assert task.predict(outputs, encoded) == ["bad", "bad, face", "cage"]
        # The second says "cage", half of its second answer; the third says "bad".
        outputs[1], outputs[2] = outputs[2], outputs[0]
        assert task.predict(outputs, encoded) == ["bad", "cage", "bad"]
        assert task.statistics(outputs, encoded).tolist() == pytest.approx([1.0, part, wrong])


LONG = f"{'abc ' * 40}dad {'fig ' * 5}".strip()


def test_an_answer_in_the_second_window_only_is_found_there(tokenizer: PreTrainedTokenizerBase) -> None:
    task = task_of([row(LONG, "hi", "dad"), row("jade abc", "hi", "jade")], stride=4)
    encoded = task.encode("train", tokenizer, 64)
    held = [feature["labels"][0] > 0 for feature in encoded]
    assert encoded.origins == (*[0] * (len(held) - 1), 1)
    assert not held[0]
    assert sum(held) == 2
    outputs = planted(encoded)
    assert task.predict(outputs, encoded) == ["dad", "jade"]
    # A window that is surer of another answer wins.
    outputs[0][5, 0] = outputs[0][6, 1] = 10
    (first, _), (_, stop) = encoded.characters[0][5:7]
    assert task.predict(outputs, encoded) == [LONG[first:stop], "jade"]
    assert task.statistics(outputs, encoded).tolist() == [0.0, 1.0]
    # Taken examples keep their order and their windows, however they are named.
    assert task.statistics(outputs, encoded.take([1, 0])).tolist() == [0.0, 1.0]
    assert task.statistics(outputs[-1:], encoded.take([1])).tolist() == [1.0]


def test_a_question_without_an_answer_is_right_where_every_window_points_at_its_first_token(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    rows = [row(LONG, "hi", "dad"), row(LONG, "hi"), row("jade abc", "hi", "jade")]
    task = task_of(rows, stride=4)
    encoded = task.encode("train", tokenizer, 64)
    windows = [place for place, origin in enumerate(encoded.origins or ()) if origin == 1]
    assert len(windows) > 1
    assert {encoded[place]["labels"] for place in windows} == {(0, 0)}
    outputs = planted(encoded)
    for place, logits in enumerate(outputs):
        logits[0] = (4, 3) if place in windows else 0
    assert task.predict(outputs, encoded) == ["dad", "", "jade"]
    assert task.statistics(outputs, encoded).tolist() == [1.0, 1.0, 1.0]
    # One window that is surer of an answer is enough: 7 of no answer in the others, 6 in this one.
    outputs[windows[-1]][0] = 3, 3
    outputs[windows[-1]][encoded.characters[windows[-1]][:, 0] >= 0] = 3.5
    assert task.predict(outputs, encoded)[1] != ""
    # Where every question has one, as in v1.1, an answer is given whatever the first token says.
    answered = task_of([rows[0], rows[2]], stride=4)
    encoded = answered.encode("train", tokenizer, 64)
    assert answered.predict(planted(encoded), encoded) == ["dad", "jade"]


@pytest.mark.parametrize("stride", [0, 5, 128])
def test_windows_are_no_longer_than_the_reference_share_the_stride_and_lose_no_token(
    rows: Rows, tokenizer: PreTrainedTokenizerBase, stride: int
) -> None:
    encoded = task_of(rows, stride=stride).encode("train", tokenizer, 64)
    longest = max(len(tokenizer(row["question"], add_special_tokens=False)["input_ids"]) for row in rows)
    shared = min(stride, (64 - 3 - longest) // 2)
    assert encoded.lengths.max() == 64
    for example, asked in enumerate(rows):
        question = tokenizer(asked["question"])["input_ids"]
        context = tokenizer(asked["context"], add_special_tokens=False)["input_ids"]
        joined: list[int] = []
        for index in np.flatnonzero(np.array(encoded.origins) == example):
            ids = encoded[index]["input_ids"]
            assert ids[: len(question)] == question
            own = ids[len(question) : -1]
            assert joined[len(joined) - shared :] == own[:shared] or not joined
            inside = encoded.characters[index][:, 0] >= 0
            assert inside.tolist() == [False] * len(question) + [True] * len(own) + [False]
            joined += own[shared:] if joined else own
        assert joined == context


def test_windows_that_cannot_be_cut_are_one_line(rows: Rows, tokenizer: PreTrainedTokenizerBase) -> None:
    task = task_of(rows)
    with pytest.raises(DataError, match=r"ByT5Tokenizer .* needs a fast tokenizer"):
        task.encode("train", ByT5Tokenizer(), 8)
    longest = max(len(tokenizer(row["question"])["input_ids"]) for row in rows) + 1
    with pytest.raises(DataError, match=f"takes {longest} tokens .* {longest + 8} are the least") as caught:
        task.encode("train", tokenizer, longest + 7)
    assert "\n" not in str(caught.value)
    assert task.encode("train", tokenizer, longest + 8).lengths.max() == longest + 8


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("The Denver  Broncos!", "denver broncos"),
        ("a  cat, an ant\tand\nthe dog", "cat ant and dog"),
        # Articles are words of their own, and only once punctuation is gone.
        ("theatre another banana", "theatre another banana"),
        ("the-end", "theend"),
        ("the.", ""),
        ("24–10", "24–10"),  # noqa: RUF001 (a dash that is no ASCII punctuation stays)
        ("THE $1,234.5 ÉTÉ", "12345 été"),
    ],
)
def test_answers_are_compared_without_case_points_articles_and_spaces(text: str, same: str) -> None:
    assert normalised(text) == same


@pytest.mark.parametrize(
    ("predicted", "answers", "exact", "f1"),
    [
        ("Denver", ["the Denver Broncos."], 0.0, 2 / 3),  # precision 1, recall 1/2
        ("five", ["one two", "the Five"], 1.0, 1.0),
        ("no no", ["no no way"], 0.0, 4 / 5),  # a repeated word counts as often as it is in both
        # Version 1.1: equal without a word in common is an exact match, and F1 0.
        ("the", ["The."], 1.0, 0.0),
        ("", ["x"], 0.0, 0.0),
        ("", [""], 1.0, 1.0),
        ("x", [""], 0.0, 0.0),
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
