"""Rows, and files that hold them, as public data sets and annotation tools write them."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.tasks import DataSource, load_task
from ldsearch.tasks.tables import Columns

ROWS = range(20)
TEXTS = [f"alpha{row} beta{row * 7} gamma{row * 3}" for row in ROWS]
OTHERS = [f"delta{row} eta{row * 5}" for row in ROWS]
AB = ["ab"[row % 2] for row in ROWS]
NAMES = [f"Anna{row}" for row in ROWS]
LIVES = [f"{name} lives in Rome." for name in NAMES]
WORDS = [((name, "lives", "in", "Rome", "."), ("B-PER", "O", "O", "O", "O")) for name in NAMES]
ASKED = [(text, f"Who {row}?") for row, text in enumerate(LIVES)]
ANSWERED = [(*asked, ((0, name),)) for asked, name in zip(ASKED, NAMES, strict=True)]
STARS = [row % 5 + 1 for row in ROWS]


@dataclass(frozen=True)
class Given:
    """Files by name, of which the first is the data unless ``folder``, and how they are read."""

    task: str
    files: dict[str, str]
    folder: bool = False
    known: Sequence[str] | None = None
    columns: Columns = field(default_factory=Columns)

    def load(self, home: Path) -> Any:
        for name, content in self.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(content)
        data = home if self.folder else home / next(iter(self.files))
        return load_task(
            self.task, DataSource(str(data), keep_overlap=True, columns=self.columns), self.known
        )


def jsonl(**named: Sequence[Any]) -> dict[str, str]:
    return {
        "data.jsonl": "".join(
            json.dumps(dict(zip(named, row, strict=True))) + "\n" for row in zip(*named.values(), strict=True)
        )
    }


def as_csv(name: str = "data.csv", mark: str = ",", **named: Sequence[Any]) -> dict[str, str]:
    out = io.StringIO()
    csv.writer(out, delimiter=mark, lineterminator="\n").writerows(
        [list(named), *zip(*named.values(), strict=True)]
    )
    return {name: out.getvalue()}


def lines(name: str, made: Callable[[int], str], end: str = "\n") -> dict[str, str]:
    return {name: "".join(made(row) + end for row in ROWS)}


def as_json(content: Any) -> dict[str, str]:
    return {"data.json": json.dumps(content)}


def tagged(mark: str, end: str = "\n") -> Callable[[int], str]:
    """The words of a sentence, a line each."""
    return lambda row: "".join(f"{word}{mark}{tag}{end}" for word, tag in zip(*WORDS[row], strict=True))


def as_tsv(header: Sequence[str], *columns: Sequence[Any], start: str = "") -> str:
    """As GLUE's: no cell is quoted."""
    rows = [header, *zip(*columns, strict=True)] if header else zip(*columns, strict=True)
    return start + "".join("\t".join(map(str, row)) + "\n" for row in rows)


def conll(row: int) -> str:
    start = "" if row else "\ufeff-DOCSTART- -X- O\r\n\r\n"
    return start + tagged((" NN ", "\tVB ")[row % 2], "\r\n")(row)


def conllu(row: int) -> str:
    words = WORDS[row][0]
    cells = [f"{place}\t{word}\t_\tUPOS{place % 2}\tX\t_\t0\t_\t_\t_" for place, word in enumerate(words, 1)]
    cells.insert(1, "1-2\tAnnalives" + "\t_" * 8)
    cells.insert(3, "2.1\tghost" + "\t_" * 8)
    return "\n".join([f"# sent_id = {row}", "# text = x", *cells]) + "\n"


def squad(rows: Sequence[int] = ROWS, every: int = 99) -> Any:
    """SQuAD v2's file, in which every so manieth text has no answer: two questions each."""
    articles: list[Any] = [{"title": name, "paragraphs": []} for name in "ab"]
    for row in rows:
        answers = [{"text": NAMES[row], "answer_start": 0}] if row % every else []
        asked = {"answers": answers, "is_impossible": not answers}
        both = [{"question": question, "id": f"{row}", **asked} for question in (ASKED[row][1], "Who?")]
        articles[row % 2]["paragraphs"].append({"context": LIVES[row], "qas": both})
    return {"data": articles, "version": "v2.0"}


def squads_rows(every: int = 99) -> list[Any]:
    """What ``squad`` holds."""
    asked = [(row, question) for row in ROWS for question in (ASKED[row][1], "Who?")]
    return [(LIVES[row], question, ((0, NAMES[row]),) if row % every else ()) for row, question in asked]


FRAME = pd.DataFrame({"text": TEXTS, "label": AB})
SINGLE = [(text, None, label) for text, label in zip(TEXTS, AB, strict=True)]
PAIRS = [(one, two, label) for one, two, label in zip(TEXTS, OTHERS, AB, strict=True)]
CONTEXTS, QUESTIONS = zip(*ASKED, strict=True)
HOT = {"joy": [row % 2 for row in ROWS], "anger": [int(row % 3 == 0) for row in ROWS]}
SEVERAL = [tuple(sorted(name for name in HOT if HOT[name][row])) for row in ROWS]
SPANS = [[0, len(name), "PER"] for name in NAMES]
OFFSETS = [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": len(name) + 1} for name in NAMES]
ENDS = [{"start": 0, "end": len(name), "text": name, "labels": ["PER"]} for name in NAMES]
LISTED = [list(words) for words, _ in WORDS]
TAGS = [list(tags) for _, tags in WORDS]

NUMBERS = [row / 8 - 1 for row in ROWS]
SPACED = [f"  {row} " for row in ROWS]
# The columns of GLUE's files, and where the two texts stand; labels are last, in MRPC first.
GLUE = {
    "mnli": (["index", "promptID", "sentence1_parse", "sentence1", "sentence2", "label1", "gold_label"], 3),
    "mrpc": (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], 3),
    "qnli": (["index", "question", "sentence", "label"], 1),
    "qqp": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], 3),
    "stsb": (["index", "genre", "source1", "sentence1", "sentence2", "score"], 3),
}


def glue(name: str) -> tuple[Given, list[Any]]:
    header, first = GLUE[name]
    kind, labels = ("regression", NUMBERS) if name == "stsb" else ("classification", AB)
    columns: list[Sequence[Any]] = [ROWS] * len(header)
    columns[first : first + 2] = TEXTS, OTHERS
    columns[0 if name == "mrpc" else -1] = labels
    given = Given(kind, {"train.tsv": as_tsv(header, *columns, start="\ufeff")}, folder=True)
    return given, list(zip(TEXTS, OTHERS, labels, strict=True))
