"""Files that could only be guessed at are refused with what helps."""

from pathlib import Path

import pytest

from ldsearch.errors import DataError
from ldsearch.tasks.tables import Columns
from tests.tasks.file_rows import (
    AB,
    HOT,
    LIVES,
    NAMES,
    OTHERS,
    QUESTIONS,
    ROWS,
    STARS,
    TEXTS,
    Given,
    as_csv,
    as_json,
    jsonl,
    lines,
)

EIGHTHS = [row / 8 for row in ROWS]
TWICE = [f"{name} and {name}" for name in NAMES]
REFUSED: dict[str, tuple[Given, str]] = {
    "several columns, none named": (
        Given("multi-label", as_csv(text=TEXTS, **HOT)),
        "--label-column joy,anger",
    ),
    "a column that is not 0 and 1": (
        Given("multi-label", as_csv(text=TEXTS, joy=STARS, anger=STARS), columns=Columns(label="joy,anger")),
        "neither 0 nor 1 in column 'joy' (the first is row 1)",
    ),
    "a column that is not there": (
        Given("multi-label", as_csv(text=TEXTS, **HOT), columns=Columns(label="joy,fear")),
        "no column 'fear'; it has text, joy, anger",
    ),
    "two texts": (
        Given("classification", jsonl(first=TEXTS, second=OTHERS, label=AB)),
        "--pair-column",
    ),
    "numbers for labels": (Given("classification", jsonl(text=TEXTS, score=EIGHTHS)), "--task regression"),
    "numbers that are named as labels": (
        Given("classification", jsonl(text=TEXTS, score=EIGHTHS), columns=Columns(label="score")),
        "--task regression",
    ),
    "numbers that training did not have": (
        Given(
            "classification",
            {
                "train.csv": "text,score\n" + "".join(f"{TEXTS[row]},{row % 3 / 8}\n" for row in ROWS),
                "validation.csv": "text,score\n" + "".join(f"{text},2.083\n" for text in OTHERS),
            },
            folder=True,
            columns=Columns(label="score"),
        ),
        "2.083 (numbers to be predicted as numbers are --task regression)",
    ),
    **{
        f"lists of labels, which may be {kind}": (
            Given(
                "classification",
                jsonl(tokens=[text.split() for text in TEXTS], labels=[["O"] * 3] * 20),
                columns=Columns(text="tokens"),
            ),
            f"--task {kind}",
        )
        for kind in ("multi-label", "tokens")
    },
    "fastText's several labels": (
        Given("classification", lines("train.txt", lambda row: f"__label__x __label__y {TEXTS[row]}")),
        "several labels: --task multi-label",
    ),
    "words and tags for texts": (
        Given("classification", {"d.txt": "".join(f"{name} NN B-PER\n\n" for name in NAMES)}),
        "--task tokens",
    ),
    "a word without a tag": (
        Given("tokens", {"d.conll": "a O\nb\n"}),
        "a line needs a word and its tag, not 'b' alone",
    ),
    "tags for a text": (
        Given("tokens", jsonl(text=TEXTS, labels=[["B-X", "O", "O"]] * 20), columns=Columns(text="text")),
        "no list of words",
    ),
    "NumPy's lists in a csv": (
        Given("multi-label", as_csv(text=TEXTS, labels=["['joy' 'anger']"] * 20)),
        "is a list as NumPy prints it",
    ),
    "tables by other names": (
        Given("classification", as_json({"train": [{"text": "a", "label": 0}], "glossary": [{"word": "b"}]})),
        "several tables, train, glossary: name each train, validation or test",
    ),
    "four stars of five": (
        Given(
            "classification",
            jsonl(text=TEXTS, stars=[row % 4 + 2 for row in ROWS]),
            known=[f"LABEL_{n}" for n in range(5)],
        ),
        "in the order of the model's with --labels",
    ),
    "SNLI's rows without agreement": (
        Given(
            "classification", jsonl(sentence1=TEXTS, sentence2=OTHERS, gold_label=["a", "b", "-", "a"] * 5)
        ),
        "5 train rows have no label (the first is row 2)",
    ),
    "decimal commas": (
        Given("regression", as_csv(mark=";", text=TEXTS, score=[f"{row},5" for row in ROWS])),
        "a decimal point is needed, not a comma (the first is row 0)",
    ),
    "words in a row without sentences": (
        Given("tokens", as_csv(word=TEXTS, tag=AB)),
        "needs a column sentence_id",
    ),
    "entities that overlap": (
        Given("tokens", jsonl(text=LIVES, entities=[[[0, 5, "A"], [0, len(n), "B"]] for n in NAMES])),
        "20 given rows have entities that overlap",
    ),
    "entities inside words": (
        Given("tokens", jsonl(text=LIVES, entities=[[[1, len(n), "A"]] for n in NAMES])),
        "begins or ends inside a word",
    ),
    "GermEval's numbers": (
        Given(
            "tokens", {"d.tsv": "".join(f"#\thttp://x\n1\t{n}\tB-PER\tO\n2\tlives\tO\tO\n\n" for n in NAMES)}
        ),
        "begin with the number of a word: keep the word first and its tag last",
    ),
    "an answer that stands twice": (
        Given("questions", jsonl(context=TWICE, question=QUESTIONS, answer=NAMES)),
        "20 train rows have an answer that stands not once in the context",
    ),
    "Moses' files of other languages": (
        Given(
            "translation",
            lines("train.fi", TEXTS.__getitem__) | lines("train.fr", OTHERS.__getitem__),
            folder=True,
        ),
        "among fi, fr; name it with --text-column and --label-column",
    ),
    "Moses' files of other lengths": (
        Given("translation", {"train.de": "a\nb\n", "train.en": "a\n"}, folder=True),
        "2 in train.de, 1 in train.en",
    ),
    "one of Moses' files": (
        Given("translation", lines("train.de", str)),
        "a folder with train.de and train.en",
    ),
    "chats": (
        Given("causal", jsonl(messages=[[{"role": "user", "content": t}] for t in TEXTS])),
        "apply_chat_template",
    ),
    "prompts": (
        Given("causal", jsonl(instruction=TEXTS, output=OTHERS)),
        "a prompt and its answer, is to be one text",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_a_guess_is_refused_with_what_helps(tmp_path: Path, name: str) -> None:
    given, says = REFUSED[name]
    with pytest.raises(DataError) as refused:
        given.load(tmp_path)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
