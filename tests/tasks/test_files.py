"""Files as public data sets and annotation tools write them: what is read, or refused with what helps."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ldsearch.errors import DataError
from ldsearch.tasks import DataSource, load_task
from ldsearch.tasks.tables import Columns

ROWS = range(20)
TEXTS = [f"alpha{row} beta{row * 7} gamma{row * 3}" for row in ROWS]
OTHERS = [f"delta{row} eta{row * 5}" for row in ROWS]
AB = ["ab"[row % 2] for row in ROWS]
NAMES = [f"Anna{row}" for row in ROWS]
LIVES = [f"{name} lives in Rome." for name in NAMES]
WORDS = [((name, "lives", "in", "Rome", "."), ("B-PER", "O", "O", "O", "O")) for name in NAMES]
LISTED, TAGS = ([list(own[side]) for own in WORDS] for side in (0, 1))
QUESTIONS = [f"Who {row}?" for row in ROWS]
HOT = {"joy": [row % 2 for row in ROWS], "anger": [int(row % 3 == 0) for row in ROWS]}


def load(home: Path, task: str, files: dict[str, str], columns: Columns | None = None) -> Any:
    """Of files by name the first is the data, or their folder if that is called train."""
    for name, content in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    first = next(iter(files))
    data = home if first.startswith("train") else home / first
    return load_task(task, DataSource(str(data), keep_overlap=True, columns=columns or Columns()))


def jsonl(**named: Sequence[Any]) -> dict[str, str]:
    rows = (dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True))
    return {"data.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}


def as_csv(name: str = "data.csv", mark: str = ",", **named: Sequence[Any]) -> dict[str, str]:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark, lineterminator="\n")
    writer.writerows([list(named), *zip(*named.values(), strict=True)])
    return {name: out.getvalue()}


def as_json(content: Any) -> dict[str, str]:
    return {"data.json": json.dumps(content)}


def as_tsv(header: Sequence[str], *columns: Sequence[Any]) -> str:
    """As GLUE's: no cell is quoted; without names of columns where there are none."""
    rows = [*([header] if header else []), *zip(*columns, strict=True)]
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def lines(name: str, made: Callable[[int], str], end: str = "\n") -> dict[str, str]:
    return {name: "".join(made(row) + end for row in ROWS)}


def tagged(mark: str, end: str = "\n") -> Callable[[int], str]:
    """The words of a sentence, a line each."""
    return lambda row: "".join(f"{word}{mark}{tag}{end}" for word, tag in zip(*WORDS[row], strict=True))


def conll(row: int) -> str:
    start = "" if row else "\ufeff-DOCSTART- -X- O\r\n\r\n"
    return start + tagged((" NN ", "\tVB ")[row % 2], "\r\n")(row)


def conllu(row: int) -> str:
    cells = [
        f"{place}\t{word}\t_\tUPOS{place % 2}\tX\t_\t0\t_\t_\t_" for place, word in enumerate(LISTED[row], 1)
    ]
    cells.insert(1, "1-2\tAnnalives" + "\t_" * 8)
    cells.insert(3, "2.1\tghost" + "\t_" * 8)
    return "\n".join([f"# sent_id = {row}", "# text = x", *cells]) + "\n"


def squad(rows: Sequence[int] = ROWS, every: int = 99) -> Any:
    """SQuAD v2's file, in which every so manieth text has no answer: two questions each."""
    articles: list[Any] = [{"title": name, "paragraphs": []} for name in "ab"]
    for row in rows:
        answers = [{"text": NAMES[row], "answer_start": 0}] if row % every else []
        asked = {"answers": answers, "is_impossible": not answers}
        both = [{"question": question, "id": f"{row}", **asked} for question in (QUESTIONS[row], "Who?")]
        articles[row % 2]["paragraphs"].append({"context": LIVES[row], "qas": both})
    return {"data": articles, "version": "v2.0"}


def squads_rows(every: int = 99) -> list[Any]:
    """What ``squad`` holds."""
    asked = [(row, question) for row in ROWS for question in (QUESTIONS[row], "Who?")]
    return [(LIVES[row], question, ((0, NAMES[row]),) if row % every else ()) for row, question in asked]


# The columns of GLUE's files, and where the two texts stand; labels are last, in MRPC first.
GLUE = {
    "mnli": (["index", "promptID", "sentence1_parse", "sentence1", "sentence2", "label1", "gold_label"], 3),
    "mrpc": (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], 3),
    "qnli": (["index", "question", "sentence", "label"], 1),
    "qqp": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], 3),
    "stsb": (["index", "genre", "source1", "sentence1", "sentence2", "score"], 3),
}


def glue(name: str, labels: Sequence[Any]) -> dict[str, str]:
    header, first = GLUE[name]
    columns: list[Sequence[Any]] = [ROWS] * len(header)
    columns[first : first + 2] = TEXTS, OTHERS
    columns[0 if name == "mrpc" else -1] = labels
    return {"train.tsv": "\ufeff" + as_tsv(header, *columns)}


FRAME = pd.DataFrame({"text": TEXTS, "label": AB})
SPACED = [f"  {row} " for row in ROWS]
NUMBERS = [row / 8 - 1 for row in ROWS]
COLA = ['"one', *TEXTS[1:]]  # a quotation mark that opens a cell and never closes
SEVERAL = [sorted(name for name in HOT if HOT[name][row]) for row in ROWS]
WITH_COMMAS = [" , ".join(own) for own in SEVERAL]
SPANS = [[0, len(name), "PER"] for name in NAMES]
OFFSETS = [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": len(name) + 1} for name in NAMES]
ENDS = [{"start": 0, "end": len(name), "text": name, "labels": ["PER"]} for name in NAMES]
KAGGLES = [
    f"{f'Sentence: {row}' if place == 0 else ''},{word},NN,{tag}\n"
    for row, own in enumerate(WORDS)
    for place, (word, tag) in enumerate(zip(*own, strict=True))
]
ASKED: dict[str, Sequence[Any]] = {"context": LIVES, "question": QUESTIONS}
HUBS = [{"text": [name], "answer_start": [0]} for name in NAMES]
CLINC = {
    "oos_val": [0],
    "val": [1],
    "train": ROWS[2:16],
    "oos_test": [16],
    "test": [17],
    "oos_train": [18, 19],
}
# What is read of them.
SINGLE = [(text, None, label) for text, label in zip(TEXTS, AB, strict=True)]
PAIRS = list(zip(TEXTS, OTHERS, AB, strict=True))
NUMBERED = list(zip(TEXTS, OTHERS, NUMBERS, strict=True))
LABELLED = [(text, None, tuple(own)) for text, own in zip(TEXTS, SEVERAL, strict=True)]
ANSWERED = [(*asked, ((0, name),)) for *asked, name in zip(LIVES, QUESTIONS, NAMES, strict=True)]
TRANSLATED = list(zip(TEXTS, OTHERS, strict=True))

# Of each task by the name of a data set or a tool: files, their rows, and the columns that are named.
READ: dict[str, dict[str, tuple[Any, ...]]] = {
    "classification": {
        "query and passage": (jsonl(query=TEXTS, passage=OTHERS, label=AB), PAIRS),
        "query and text": (as_csv(id=ROWS, query=TEXTS, text=OTHERS, label=AB), PAIRS),
        "ANLI": (jsonl(uid=AB, context=TEXTS, hypothesis=OTHERS, label=AB), PAIRS),
        "BoolQ": (
            jsonl(question=TEXTS, passage=OTHERS, answer=[row % 2 == 0 for row in ROWS]),
            [(*row[:2], str(row[2] == "a")) for row in PAIRS],
        ),
        "tabs": (as_csv("d.tsv", "\t", id=ROWS, text_a=TEXTS, text_b=OTHERS, label=AB), PAIRS),
        "AG News": (as_csv(**{"Class Index": AB, "Title": TEXTS, "Description": OTHERS}), PAIRS),
        **{f"GLUE's {name}": (glue(name, AB), PAIRS) for name in GLUE if name != "stsb"},
        "MASSIVE": (jsonl(id=ROWS, locale=AB, intent=AB, utt=TEXTS), SINGLE),
        "CLINC": (
            as_json({name: [[TEXTS[row], AB[row]] for row in own] for name, own in CLINC.items()}),
            SINGLE,
        ),
        "doccano's classes": (jsonl(id=ROWS, text=TEXTS, label=[[one] for one in AB]), SINGLE),
        # The test file has a header, and no labels.
        "CoLA": (
            {
                "train.tsv": as_tsv([], AB[:14], HOT["joy"][:14], ["*", ""] * 7, COLA[:14]),
                "dev.tsv": as_tsv([], AB[14:], HOT["joy"][14:], [""] * 6, COLA[14:]),
                "test.tsv": as_tsv(["index", "sentence"], [0], ['"one']),
            },
            [(text, None, str(row % 2)) for row, text in enumerate(COLA)],
        ),
        "fastText's lines": (lines("d.txt", lambda row: f"__label__{AB[row]} {TEXTS[row]}"), SINGLE),
        "spaces, and what looks like nothing": (
            jsonl(premise=SPACED, hypothesis=["NA", ""] * 10, label=AB),
            list(zip(SPACED, ["NA", ""] * 10, AB, strict=True)),
        ),
        "a folder a class": (
            {f"{'train' if row < 15 else 'test'}/{AB[row]}/{row}_7.txt": TEXTS[row] for row in ROWS}
            | {"train/unsup/0_0.txt": "nobody's"},
            SINGLE,
        ),
        **{
            f"pandas' {orient}": ({"data.json": FRAME.to_json(orient=orient)}, SINGLE)
            for orient in ("split", "index", "columns", "records", "table")
        },
    },
    "multi-label": {
        "lists in a csv": (as_csv(text=TEXTS, labels=SEVERAL), LABELLED),
        "names with commas in a csv": (as_csv(text=TEXTS, labels=WITH_COMMAS), LABELLED),
        "names with commas in a jsonl": (jsonl(text=TEXTS, labels=WITH_COMMAS), LABELLED),
        "columns of 0 and 1": (as_csv(comment_text=TEXTS, **HOT), LABELLED, Columns(label="joy,anger")),
        "fastText's lines": (
            lines("d.txt", lambda row: f"__label__x __label__{AB[row]} {TEXTS[row]}"),
            [(text, None, (label, "x")) for text, _, label in SINGLE],
        ),
    },
    "regression": {
        "a csv": (as_csv(sentence1=TEXTS, sentence2=OTHERS, label=NUMBERS), NUMBERED),
        "a jsonl": (jsonl(sentence1=TEXTS, sentence2=OTHERS, label=NUMBERS), NUMBERED),
        "GLUE's stsb": (glue("stsb", NUMBERS), NUMBERED),
    },
    "tokens": {
        "Kaggle's NER csv": ({"d.csv": "Sentence #,Word,POS,Tag\n" + "".join(KAGGLES)}, WORDS),
        "a word a row": (
            as_csv(sentence_id=sorted([*ROWS] * 5), token=[*chain(*LISTED)], ner_tag=[*chain(*TAGS)]),
            WORDS,
        ),
        "doccano's spans": (jsonl(id=ROWS, text=LIVES, label=[[own] for own in SPANS]), WORDS),
        "doccano's entities": (
            jsonl(text=LIVES, entities=[[own] for own in OFFSETS], relations=[[]] * 20),
            WORDS,
        ),
        "Label Studio's spans": (jsonl(text=LIVES, label=[[own] for own in ENDS]), WORDS),
        "Prodigy's spans": (
            jsonl(text=LIVES, tokens=[[{"id": 0}]] * 20, spans=[[{**own, "label": "PER"}] for own in ENDS]),
            WORDS,
        ),
        "spaCy's examples": (
            as_json([[text, {"entities": [own]}] for text, own in zip(LIVES, SPANS, strict=True)]),
            WORDS,
        ),
        **{
            f"word and tag in .{kind}": (lines(f"d.{kind}", tagged("\t")), WORDS)
            for kind in ("tsv", "bio", "iob2", "conll", "txt")
        },
        # With a byte order mark, Windows' line ends, columns between, and blank lines that hold a space.
        "CoNLL-2003": (lines("d.txt", conll, end=" \r\n"), WORDS),
        "a folder of such files": (
            {
                f"{name}.txt": "\n".join(map(tagged(" "), own))
                for name, own in (("train", ROWS[:14]), ("valid", ROWS[14:17]), ("test", ROWS[17:]))
            },
            WORDS,
        ),
        "CoNLL-U": (
            lines("d.conllu", conllu),
            [(words, ("UPOS1", "UPOS0", "UPOS1", "UPOS0", "UPOS1")) for words, _ in WORDS],
        ),
        "lists in a csv": (as_csv(tokens=LISTED, ner_tags=TAGS), WORDS),
    },
    "questions": {
        "SQuAD v2": (as_json(squad(every=4)), squads_rows(every=4)),
        "SQuAD's two files": (
            {
                f"{name}-v1.1.json": json.dumps(squad(own))
                for name, own in (("train", ROWS[:14]), ("dev", ROWS[14:]))
            },
            squads_rows(),
        ),
        "texts": (jsonl(**ASKED, answer=NAMES), ANSWERED),
        "lists of texts": (jsonl(**ASKED, answers=[[name] for name in NAMES]), ANSWERED),
        "objects": (
            jsonl(**ASKED, answers=[[{"text": name, "answer_start": 0}] for name in NAMES]),
            ANSWERED,
        ),
        "json in a csv": (as_csv(**ASKED, answers=[*map(json.dumps, HUBS)]), ANSWERED),
        "what Python prints, in a csv": (as_csv(**ASKED, answers=HUBS), ANSWERED),
        "two columns": (as_csv(**ASKED, answer_text=NAMES, answer_start=[0] * 20), ANSWERED),
    },
    "translation": {
        "Moses' files": ({"train.de": "\n".join(TEXTS), "train.en": "\n".join(OTHERS)}, TRANSLATED),
        "Moses' files the other way": (
            {"train.fr": "\n".join(OTHERS), "train.en": "\n".join(TEXTS)},
            TRANSLATED,
            Columns("en", None, "fr"),
        ),
        "languages in one column": (
            jsonl(id=ROWS, translation=[{"de": a, "en": b} for a, b in TRANSLATED]),
            TRANSLATED,
        ),
    },
    "summarisation": {"dialogues": (jsonl(dialogue=TEXTS, summary=OTHERS), TRANSLATED)},
}


def rows_of(task: Any) -> list[Any]:
    """What every row of every split holds, labels by name."""
    found: list[Any] = []
    for own in task.splits.values():
        if task.kind == "tokens":
            tags = (tuple(task.labels[tag] for tag in tags) for tags in own.tags)
            found += zip(own.words, tags, strict=True)
        elif task.kind == "questions":
            answers = (tuple(map(tuple, answers)) for answers in own.answers)
            found += zip(own.contexts, own.questions, answers, strict=True)
        elif task.head == "Seq2SeqLM":
            found += [(source, target) for source, (target,) in zip(own.sources, own.targets, strict=True)]
        else:
            name: Callable[[Any], Any] = {
                "classification": lambda label: task.labels[label],
                "multi-label": lambda label: tuple(compress(task.labels, label)),
                "regression": lambda label: label,
            }[task.kind]
            found += zip(own.texts, own.pairs or [None] * len(own), map(name, own.labels), strict=True)
    return found


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, own in READ.items() for name in own])
def test_rows_are_those_that_lie_in_the_files(tmp_path: Path, kind: str, name: str) -> None:
    files, expected, *columns = READ[kind][name]
    task = load(tmp_path, kind, files, *columns)
    assert sorted(rows_of(task), key=repr) == sorted(expected, key=repr)
    # A search reads them again by what the training wrote down.
    read = {key: value for key, value in task.source.items() if key != "task"}
    source = DataSource(**{**read, "columns": Columns(**read["columns"])})
    assert rows_of(load_task(kind, source, list(task.labels) or None)) == rows_of(task)


STARS = [row % 5 + 1 for row in ROWS]
# Of each task: files, what the refusal says, and the columns that are named.
REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "classification": {
        "two texts": (jsonl(first=TEXTS, second=OTHERS, label=AB), "--pair-column"),
        "numbers for labels": (jsonl(text=TEXTS, score=NUMBERS), "--task regression"),
        "numbers named as labels": (
            jsonl(text=TEXTS, score=NUMBERS),
            "--task regression",
            Columns(label="score"),
        ),
        "fastText's several labels": (
            lines("d.txt", lambda row: f"__label__x __label__y {TEXTS[row]}"),
            "several labels: --task multi-label",
        ),
        "words and tags for texts": (lines("d.txt", "{} NN B-PER\n".format), "--task tokens"),
        "tables by other names": (
            as_json({"train": [{"text": "a", "label": 0}], "glossary": [{"word": "b"}]}),
            "several tables, train, glossary: name each train, validation or test",
        ),
        "SNLI's rows without agreement": (
            jsonl(sentence1=TEXTS, sentence2=OTHERS, gold_label=["a", "b", "-", "a"] * 5),
            "5 train rows have no label (the first is row 2)",
        ),
    },
    "multi-label": {
        "several columns, none named": (as_csv(text=TEXTS, **HOT), "--label-column joy,anger"),
        "a column that is not 0 and 1": (
            as_csv(text=TEXTS, joy=STARS, anger=STARS),
            "neither 0 nor 1 in column 'joy' (the first is row 1)",
            Columns(label="joy,anger"),
        ),
        "a column that is not there": (
            as_csv(text=TEXTS, **HOT),
            "no column 'fear'; it has text, joy, anger",
            Columns(label="joy,fear"),
        ),
    },
    "tokens": {
        "a word without a tag": ({"d.conll": "a O\nb\n"}, "a line needs a word and its tag, not 'b' alone"),
        "words in a row without sentences": (as_csv(word=TEXTS, tag=AB), "needs a column sentence_id"),
        "entities that overlap": (
            jsonl(text=LIVES, entities=[[[0, 5, "A"], [0, len(name), "B"]] for name in NAMES]),
            "20 given rows have entities that overlap",
        ),
        "entities inside words": (
            jsonl(text=LIVES, entities=[[[1, len(name), "A"]] for name in NAMES]),
            "begins or ends inside a word",
        ),
        "GermEval's numbers": (
            lines("d.tsv", "#\thttp://x\n1\tAnna{}\tB-PER\tO\n2\tlives\tO\tO\n".format),
            "begin with the number of a word: keep the word first and its tag last",
        ),
    },
    "translation": {
        "Moses' files of other languages": (
            {"train.fi": "\n".join(TEXTS), "train.fr": "\n".join(OTHERS)},
            "among fi, fr; name it with --text-column and --label-column",
        ),
        "files of other lengths": ({"train.de": "a\nb", "train.en": "a"}, "2 in train.de, 1 in train.en"),
        "one of Moses' files": (lines("d.de", str), "a folder with train.de and train.en"),
    },
    "causal": {"chats": (jsonl(messages=[[{"role": "user"}]] * 20), "apply_chat_template")},
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, own in REFUSED.items() for name in own])
def test_what_would_be_a_guess_is_refused_with_what_helps(tmp_path: Path, kind: str, name: str) -> None:
    files, says, *columns = REFUSED[kind][name]
    with pytest.raises(DataError) as refused:
        load(tmp_path, kind, files, *columns)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
