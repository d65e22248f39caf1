"""Files as public data sets and annotation tools have them, as a table: what lies in them, what is read."""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from ldsearch.tasks import DataSource, TextClassification, load_task
from ldsearch.tasks.tables import Columns
from tests.tasks.file_rows import (
    AB,
    ANSWERED,
    CONTEXTS,
    ENDS,
    FRAME,
    GLUE,
    HOT,
    LISTED,
    LIVES,
    NAMES,
    NUMBERS,
    OFFSETS,
    OTHERS,
    PAIRS,
    QUESTIONS,
    ROWS,
    SEVERAL,
    SINGLE,
    SPACED,
    SPANS,
    STARS,
    TAGS,
    TEXTS,
    WORDS,
    Given,
    as_csv,
    as_json,
    as_tsv,
    conll,
    conllu,
    glue,
    jsonl,
    lines,
    squad,
    squads_rows,
    tagged,
)

READ: dict[str, tuple[Given, Sequence[Any]]] = {
    # Texts and pairs.
    "query and passage": (Given("classification", jsonl(query=TEXTS, passage=OTHERS, label=AB)), PAIRS),
    "query and text": (Given("classification", as_csv(id=ROWS, query=TEXTS, text=OTHERS, label=AB)), PAIRS),
    "ANLI": (Given("classification", jsonl(uid=AB, context=TEXTS, hypothesis=OTHERS, label=AB)), PAIRS),
    "BoolQ": (
        Given("classification", jsonl(question=TEXTS, passage=OTHERS, answer=[row % 2 == 0 for row in ROWS])),
        [(*row[:2], str(row[2] == "a")) for row in PAIRS],
    ),
    "four columns and tabs": (
        Given("classification", as_csv("d.tsv", "\t", id=ROWS, text_a=TEXTS, text_b=OTHERS, label=AB)),
        PAIRS,
    ),
    "AG News": (
        Given("classification", as_csv(**{"Class Index": AB, "Title": TEXTS, "Description": OTHERS})),
        PAIRS,
    ),
    "MASSIVE": (Given("classification", jsonl(id=ROWS, locale=AB, intent=AB, utt=TEXTS)), SINGLE),
    "CLINC": (
        Given(
            "classification",
            as_json(
                {
                    "oos_val": [[TEXTS[0], "a"]],
                    "val": [[TEXTS[1], "b"]],
                    "train": [list(r) for r in zip(TEXTS[2:16], AB[2:16], strict=True)],
                    "oos_test": [[TEXTS[16], "a"]],
                    "test": [[TEXTS[17], "b"]],
                    "oos_train": [[TEXTS[18], "a"], [TEXTS[19], "b"]],
                }
            ),
        ),
        SINGLE,
    ),
    "doccano's classes": (
        Given("classification", jsonl(id=ROWS, text=TEXTS, label=[[one] for one in AB])),
        SINGLE,
    ),
    # A quotation mark opens a cell and never closes; the test file has a header, and no labels.
    "CoLA": (
        Given(
            "classification",
            {
                "train.tsv": as_tsv([], AB[:14], HOT["joy"][:14], ["*", ""] * 7, ['"one', *TEXTS[1:14]]),
                "dev.tsv": as_tsv([], AB[14:], HOT["joy"][14:], [""] * 6, TEXTS[14:]),
                "test.tsv": as_tsv(["index", "sentence"], [0], ['"one']),
            },
            folder=True,
        ),
        [(text, None, str(row % 2)) for row, text in enumerate(['"one', *TEXTS[1:]])],
    ),
    **{f"GLUE's {name}": glue(name) for name in GLUE},
    "fastText's lines": (
        Given("classification", lines("train.txt", lambda row: f"__label__{AB[row]} {TEXTS[row]}")),
        SINGLE,
    ),
    "fastText's several labels": (
        Given("multi-label", lines("train.txt", lambda row: f"__label__x __label__{AB[row]} {TEXTS[row]}")),
        [(text, None, (label, "x")) for text, _, label in SINGLE],
    ),
    "spaces, and what looks like nothing": (
        Given("classification", jsonl(premise=SPACED, hypothesis=["NA", ""] * 10, label=AB)),
        list(zip(SPACED, ["NA", ""] * 10, AB, strict=True)),
    ),
    "a folder a class": (
        Given(
            "classification",
            {
                f"{split}/{AB[row]}/{row}_7.txt": TEXTS[row]
                for row in ROWS
                for split in [("train", "test")[row > 14]]
            }
            | {"train/unsup/0_0.txt": "nobody's"},
            folder=True,
        ),
        SINGLE,
    ),
    "several columns of 0 and 1": (
        Given("multi-label", as_csv(id=ROWS, comment_text=TEXTS, **HOT), columns=Columns(label="joy,anger")),
        [(text, None, own) for text, own in zip(TEXTS, SEVERAL, strict=True)],
    ),
    "lists in a csv": (
        Given("multi-label", as_csv(text=TEXTS, labels=[list(own) for own in SEVERAL])),
        [(text, None, own) for text, own in zip(TEXTS, SEVERAL, strict=True)],
    ),
    **{
        f"names with commas between in a {kind}": (
            Given("multi-label", made(text=TEXTS, labels=[" , ".join(own) for own in SEVERAL])),
            [(text, None, own) for text, own in zip(TEXTS, SEVERAL, strict=True)],
        )
        for kind, made in (("csv", as_csv), ("jsonl", jsonl))
    },
    **{
        f"numbers in a {kind}": (
            Given("regression", made(sentence1=TEXTS, sentence2=OTHERS, label=NUMBERS)),
            [(one, two, number) for one, two, number in zip(TEXTS, OTHERS, NUMBERS, strict=True)],
        )
        for kind, made in (("csv", as_csv), ("jsonl", jsonl))
    },
    **{
        f"pandas' {orient}": (Given("classification", {"data.json": FRAME.to_json(orient=orient)}), SINGLE)
        for orient in ("split", "index", "columns", "records", "table")
    },
    # Labels of a fine-tuned model.
    "labels in other letters": (
        Given("classification", jsonl(text=TEXTS, label=AB), known=("A", "B")),
        [(text, None, label.upper()) for text, _, label in SINGLE],
    ),
    "labels for a model that has no names": (
        Given("classification", jsonl(text=TEXTS, label=AB), known=("LABEL_0", "LABEL_1")),
        [(text, None, f"LABEL_{int(label == 'b')}") for text, _, label in SINGLE],
    ),
    "stars for a model that has no names": (
        Given(
            "classification", jsonl(text=TEXTS, stars=STARS), known=[f"LABEL_{place}" for place in range(5)]
        ),
        [(text, None, f"LABEL_{star - 1}") for text, star in zip(TEXTS, STARS, strict=True)],
    ),
    "stars for a model that counts them": (
        Given(
            "classification",
            jsonl(text=TEXTS, stars=STARS),
            known=["1 star", *(f"{n} stars" for n in range(2, 6))],
        ),
        [
            (text, None, "1 star" if star == 1 else f"{star} stars")
            for text, star in zip(TEXTS, STARS, strict=True)
        ],
    ),
    "answers of a model that has no names": (
        Given(
            "classification", jsonl(text=TEXTS, label=[f"LABEL_{row % 2}" for row in ROWS]), known=("a", "b")
        ),
        SINGLE,
    ),
    # Words and tags.
    "Kaggle's NER csv": (
        Given(
            "tokens",
            {
                "d.csv": "Sentence #,Word,POS,Tag\n"
                + "".join(
                    f"{f'Sentence: {row}' if place == 0 else ''},{word},NN,{tag}\n"
                    for row, own in enumerate(WORDS)
                    for place, (word, tag) in enumerate(zip(*own, strict=True))
                )
            },
        ),
        WORDS,
    ),
    "a word a row": (
        Given(
            "tokens",
            as_csv(
                sentence_id=[row for row in ROWS for _ in range(5)],
                token=[*chain(*LISTED)],
                ner_tag=[*chain(*TAGS)],
            ),
        ),
        WORDS,
    ),
    "doccano's spans": (Given("tokens", jsonl(id=ROWS, text=LIVES, label=[[own] for own in SPANS])), WORDS),
    "doccano's entities": (
        Given("tokens", jsonl(text=LIVES, entities=[[own] for own in OFFSETS], relations=[[]] * 20)),
        WORDS,
    ),
    "Label Studio's spans": (
        Given("tokens", as_json([{"text": t, "label": [s]} for t, s in zip(LIVES, ENDS, strict=True)])),
        WORDS,
    ),
    "Prodigy's spans": (
        Given(
            "tokens",
            jsonl(
                text=LIVES,
                tokens=[[{"text": n, "id": 0}] for n in NAMES],
                spans=[[{**own, "label": "PER"}] for own in ENDS],
            ),
        ),
        WORDS,
    ),
    "spaCy's examples": (
        Given("tokens", as_json([[t, {"entities": [s]}] for t, s in zip(LIVES, SPANS, strict=True)])),
        WORDS,
    ),
    **{
        f"word and tag in .{kind}": (Given("tokens", lines(f"d.{kind}", tagged("\t"))), WORDS)
        for kind in ("tsv", "bio", "iob2", "conll", "txt")
    },
    # With a byte order mark, Windows' line ends, columns between, and blank lines that hold a space.
    "CoNLL-2003": (
        Given("tokens", lines("d.txt", conll, end=" \r\n")),
        WORDS,
    ),
    "a folder of such files": (
        Given(
            "tokens",
            {
                f"{name}.txt": "\n".join(tagged(" ")(row) for row in own)
                for name, own in (("train", ROWS[:14]), ("valid", ROWS[14:17]), ("test", ROWS[17:]))
            },
            folder=True,
        ),
        WORDS,
    ),
    "CoNLL-U": (
        Given("tokens", lines("d.conllu", conllu)),
        [(words, ("UPOS1", "UPOS0", "UPOS1", "UPOS0", "UPOS1")) for words, _ in WORDS],
    ),
    "lists of words in a csv": (Given("tokens", as_csv(tokens=LISTED, ner_tags=TAGS)), WORDS),
    # Questions.
    "SQuAD v2": (Given("questions", as_json(squad(every=4))), squads_rows(every=4)),
    "SQuAD's two files": (
        Given(
            "questions",
            {
                "train-v1.1.json": json.dumps(squad(ROWS[:14])),
                "dev-v1.1.json": json.dumps(squad(ROWS[14:])),
            },
            folder=True,
        ),
        squads_rows(),
    ),
    "answers as text": (
        Given("questions", jsonl(context=CONTEXTS, question=QUESTIONS, answer=NAMES)),
        ANSWERED,
    ),
    "answers as texts": (
        Given("questions", jsonl(context=CONTEXTS, question=QUESTIONS, answers=[[name] for name in NAMES])),
        ANSWERED,
    ),
    "answers as objects": (
        Given(
            "questions",
            jsonl(
                context=CONTEXTS,
                question=QUESTIONS,
                answers=[[{"text": n, "answer_start": 0}] for n in NAMES],
            ),
        ),
        ANSWERED,
    ),
    **{
        f"answers in a csv, {how.__name__}": (
            Given(
                "questions",
                as_csv(
                    context=CONTEXTS,
                    question=QUESTIONS,
                    answers=[how({"text": [n], "answer_start": [0]}) for n in NAMES],
                ),
            ),
            ANSWERED,
        )
        for how in (json.dumps, str)
    },
    "answer_text and answer_start": (
        Given(
            "questions",
            as_csv(context=CONTEXTS, question=QUESTIONS, answer_text=NAMES, answer_start=[0] * 20),
        ),
        ANSWERED,
    ),
    # Texts from texts.
    "Moses' files": (
        Given(
            "translation",
            lines("train.de", TEXTS.__getitem__) | lines("train.en", OTHERS.__getitem__),
            folder=True,
        ),
        list(zip(TEXTS, OTHERS, strict=True)),
    ),
    "Moses' files the other way": (
        Given(
            "translation",
            lines("train.fr", TEXTS.__getitem__) | lines("train.en", OTHERS.__getitem__),
            folder=True,
            columns=Columns("en", None, "fr"),
        ),
        list(zip(OTHERS, TEXTS, strict=True)),
    ),
    "languages in one column": (
        Given(
            "translation",
            jsonl(id=ROWS, translation=[{"de": a, "en": b} for a, b in zip(TEXTS, OTHERS, strict=True)]),
        ),
        list(zip(TEXTS, OTHERS, strict=True)),
    ),
    "dialogues": (
        Given("summarisation", jsonl(dialogue=TEXTS, summary=OTHERS)),
        list(zip(TEXTS, OTHERS, strict=True)),
    ),
}


def rows_of(task: Any) -> list[Any]:
    """What every row of every split holds, labels by name."""
    found: list[Any] = []
    for own in task.splits.values():
        if task.kind == "tokens":
            found += [
                (w, tuple(task.labels[tag] for tag in t)) for w, t in zip(own.words, own.tags, strict=True)
            ]
        elif task.kind == "questions":
            answers = (tuple(map(tuple, answers)) for answers in own.answers)
            found += zip(own.contexts, own.questions, answers, strict=True)
        elif task.head == "Seq2SeqLM":
            found += [(source, target) for source, (target,) in zip(own.sources, own.targets, strict=True)]
        elif task.kind == "regression":
            found += zip(own.texts, own.pairs, own.labels, strict=True)
        else:
            for text, pair, label in zip(own.texts, own.pairs or [None] * len(own), own.labels, strict=True):
                several = task.kind == "multi-label"
                on = [name for name, on in zip(task.labels, label, strict=True) if on] if several else label
                found.append((text, pair, tuple(sorted(on)) if several else task.labels[on]))
    return found


@pytest.mark.parametrize("name", READ)
def test_rows_are_those_that_lie_in_the_files(tmp_path: Path, name: str) -> None:
    given, expected = READ[name]
    task = given.load(tmp_path)
    assert sorted(rows_of(task), key=repr) == sorted(expected, key=repr)
    # A search reads them again by what the training wrote down.
    read = {key: value for key, value in task.source.items() if key != "task"}
    again = load_task(
        given.task, DataSource(**{**read, "columns": Columns(**read["columns"])}), list(task.labels) or None
    )
    assert rows_of(again) == rows_of(task)


def test_labels_without_names_are_told() -> None:
    told = TextClassification.label_note(["neg", "pos"], ["LABEL_0", "LABEL_1"])
    assert (
        told
        == "the model's labels have no names: LABEL_0 for neg, LABEL_1 for pos; --labels says it otherwise"
    )
    assert not TextClassification.label_note(["NEG", "pos"], ["neg", "pos"])
