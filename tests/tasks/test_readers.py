"""Files as people have them: every format gives the rows that went in; what cannot be read is one line."""

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
import pandas as pd
import pytest

from ldsearch.errors import DataError
from ldsearch.tasks import DataSource, load_task
from ldsearch.tasks.readers import read_file
from ldsearch.tasks.tables import Columns, read_tables

# Each text is one that some reader would like to turn into something else.
TEXTS = ["NA", "null", "007", "1e5", "2020-01-31", "true", 'a "quoted", comma', " spaces ", "Grüße 漢字"]
LABELS = ("NA", "none", "nan")
ROWS = [{"text": text, "label": LABELS[index % 3]} for index, text in enumerate(TEXTS)]
Rows = Sequence[dict[str, object]]


def delimited(separator: str) -> Callable[[Rows], bytes]:
    def write(rows: Rows) -> bytes:
        file = io.StringIO()
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().encode()

    return write


def jsonl(rows: Rows) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode() + b"\n\n"


def parquet(rows: Rows) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(list(rows)).to_parquet(file)
    return file.getvalue()


WRITERS = {"csv": delimited(","), "tsv": delimited("\t"), "jsonl": jsonl, "json": jsonl, "parquet": parquet}


def put(path: Path, rows: Rows = ROWS) -> Path:
    kind = next(kind for kind in reversed(path.name.split(".")) if kind in WRITERS)
    content = WRITERS[kind](rows)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def sentences(count: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(f"w{draw.randrange(10**6)}" for _ in range(5)) for _ in range(count)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset folder; what datasets caches stays out of the user's home."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "reviews").mkdir()
    return tmp_path / "reviews"


@pytest.mark.parametrize(
    "name",
    [
        *(f"reviews.{kind}" for kind in WRITERS),
        *(f"reviews.{kind}.gz" for kind in ("csv", "tsv", "jsonl", "json")),
        "reviews.2024.v1.csv",
        "json.reviews.csv",
    ],
)
def test_every_format_gives_the_rows_that_went_in(tmp_path: Path, name: str) -> None:
    assert read_file(put(tmp_path / name)).to_dict("records") == ROWS


@pytest.mark.parametrize(
    ("suffix", "held"), [("jsonl.gz", "validation"), ("csv", "valid"), ("parquet", "dev-v1.1")]
)
def test_a_dataset_folder_is_split_by_the_names_of_its_files(
    folder: Path, suffix: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / f"train.{suffix}")
    put(folder / f"{held}.{suffix}", ROWS[3:5])
    put(folder / f"test.{suffix}", ROWS[5:6])
    monkeypatch.chdir(folder)
    for data in (str(folder), "."):
        tables = {role: table.to_dict("records") for role, table in read_tables(DataSource(data)).items()}
        assert tables == {"train": ROWS, "search": ROWS[3:5], "report": ROWS[5:6]}
    # A validation file goes before the folder's.
    tables = read_tables(DataSource(str(folder), validation=str(put(folder.parent / "held.csv", ROWS[:1]))))
    assert tables["search"]["text"].tolist() == ["NA"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", None, "no data file"),
        ("a.csv.gz", None, "no data file"),
        ("a.csv", b"", "cannot read"),
        ("a.csv", b"text,label\n", "no rows"),
        ("a.jsonl", b"", "no rows"),
        ("a.txt", b"\n \n\n", "no rows"),
        ("a.xlsx", b"words", "csv, tsv, jsonl, json, parquet, txt"),
        ("a", b"words", "unknown format"),
        ("a.gz", b"words", "unknown format"),
        ("a.csv", b"text,label\na,b\na,b,c,d\n", "cannot read"),
        ("a.csv", b'text,label\n"a,b\n', "cannot read"),
        ("a.csv", b'text,label\n"one,0\ntwo,1\nthree" four,0\n', "quotation mark that is not closed"),
        ("a.csv", "text,label\nplain,0\ngröße,1\n".encode("latin-1"), "line 3 is not UTF-8.*iconv"),
        ("a.csv.gz", b"text,label\na,b\n", "cannot read"),
        ("a.csv.gz", gzip.compress(b"text,label\n" + bytes(range(256)) * 9, mtime=0)[:-200], "cannot read"),
        ("a.conll.gz", gzip.compress(b"a\n" * 99, mtime=0)[:-9], "cannot read"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', "cannot read"),
        ("a.json", b'{"train": [{"text": "a"}], "test": [{"text": "b"}]}', "several tables, train, test"),
        ("a.parquet", b"words", "cannot read"),
        ("a.parquet", b"", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_file(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_file(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "folder/a.parquet", "a.txt"])
def test_a_missing_file_is_not_looked_for_on_a_hub(name: str) -> None:
    with pytest.raises(DataError, match=f"no data file {name}"):
        read_tables(DataSource(name))


@pytest.mark.parametrize("file", ["validation.jsonl", "readme.md", None])
def test_a_folder_without_training_rows_is_refused(folder: Path, file: str | None) -> None:
    if file:
        (folder / file).write_bytes(jsonl(ROWS))
    says = "no train split, only validation" if file == "validation.jsonl" else "cannot load the dataset"
    with pytest.raises(DataError, match=says) as caught:
        read_tables(DataSource(str(folder)))
    assert "\n" not in str(caught.value)


def test_the_training_file_is_no_validation_file(tmp_path: Path) -> None:
    path = str(put(tmp_path / "a.csv"))
    with pytest.raises(DataError, match="is the training data"):
        read_tables(DataSource(path, validation=path))


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_quotation_marks_of_glue_are_characters(tmp_path: Path, start: str, ends: str) -> None:
    # As in SST-2, CoLA and QNLI: some open a cell and never close, close what was not opened, stand alone.
    texts = ['"good" they said', 'a 5" screen', '"never closed', "nothing", 'closed" here', '"', 'the "all"']
    rows = "".join(f"{text}\t{index % 2}\n" for index, text in enumerate(texts))
    path = tmp_path / "train.tsv"
    path.write_bytes(f"{start}sentence\tlabel\n{rows}".replace("\n", ends).encode())
    assert read_file(path).to_dict("list") == {"sentence": texts, "label": ["0", "1"] * 3 + ["0"]}
    # Nor do they take the rows between two of them, where one closes another by chance.
    path.write_text('sentence\tlabel\n"one\t0\ntwo\t1\nthree"\t0\n')
    assert read_file(path)["sentence"].tolist() == ['"one', "two", 'three"']


@pytest.mark.parametrize("mark", [",", "\t", ";", "|"])
def test_cells_that_a_csv_writer_quoted_come_back(tmp_path: Path, mark: str) -> None:
    cells = ['say "x"', "two\nlines", f"a{mark} b", '"', '""', "", "plain", f'"{mark}"', ' "x" ']
    draw = random.Random(0)
    path = tmp_path / ("a.tsv" if mark == "\t" else "a.csv")
    for _ in range(50):
        rows = [
            {"text": draw.choice(cells), "label": draw.choice("ab"), "more": draw.choice(cells)}
            for _ in range(9)
        ]
        path.write_bytes(delimited(mark)(rows))
        assert read_file(path).to_dict("records") == rows


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", "text\ngröße\n"),
        ("jsonl", '{"text": "größe"}\n'),
        ("json", '[{"text": "größe"}]'),
        ("txt", "größe\n"),
    ],
)
def test_a_byte_order_mark_is_no_text(tmp_path: Path, kind: str, content: str, codec: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content.encode(codec))
    assert read_file(path).to_dict("list") == {"text": ["größe"]}


@pytest.mark.parametrize("label", ["good", "1"])
def test_a_file_without_a_header_is_refused_also_where_a_row_is_named(tmp_path: Path, label: str) -> None:
    path, texts = tmp_path / "a.csv", sentences(40)
    path.write_text("".join(f"{text},{label if row % 2 else 'bad'}\n" for row, text in enumerate(texts, 1)))
    for columns, says in (
        (Columns(), "put a line of names before it, such as text and label"),
        (Columns(text=texts[0], label=label), "looks like a row"),
    ):
        with pytest.raises(DataError, match=says):
            load_task("classification", DataSource(str(path), columns=columns))


@pytest.mark.parametrize("header", ["Text,LABEL", "text, label", "\ufeff Text ,Label"])
def test_capital_letters_and_spaces_of_a_header_do_not_matter(tmp_path: Path, header: str) -> None:
    path, texts = tmp_path / "a.csv", sentences(40)
    path.write_text(f"{header}\n" + "".join(f"{text},{row % 2}\n" for row, text in enumerate(texts)))
    task = load_task("classification", DataSource(str(path)))
    assert {text for rows in task.splits.values() for text in rows.texts} == set(texts)


@pytest.mark.parametrize("place", ["saved", "one", "shards", "train.parquet"])
def test_what_datasets_saved_keeps_the_names_of_its_classes(folder: Path, place: str) -> None:
    # Ids in another order than the alphabet's; the last class is in no row.
    names = datasets.ClassLabel(names=["O", "B-X", "I-X", "B-Y"])
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(names)}
    )
    rows = [{"tokens": text.split(), "ner_tags": [1, 2, 0, 0, 0]} for text in sentences(40)]
    data, path = datasets.Dataset.from_list(rows, features=features), folder / place
    if place == "saved":
        datasets.DatasetDict({"train": data}).save_to_disk(str(path))
    elif place == "shards":
        path.mkdir()
        for part in range(2):
            data.shard(2, part).to_parquet(str(path / f"train-0000{part}-of-00002.parquet"))
    else:
        (data.save_to_disk if place == "one" else data.to_parquet)(str(path))
    task = load_task("tokens", DataSource(str(path)))
    assert task.labels == ("O", "B-X", "I-X", "B-Y")
    assert task.metric.name == "f1"  # of entities: with ids alone it would be the accuracy of words
    assert all(tags == (1, 2, 0, 0, 0) for split in task.splits.values() for tags in split.tags)
    # A supernet's record has the names, one of before this the ids.
    assert load_task("tokens", DataSource(str(path)), task.labels).splits == task.splits
    assert load_task("tokens", DataSource(str(path)), ("0", "1", "2")).splits == task.splits


VERDICTS = ["entailment", "neutral", "contradiction"]


def verdicts(folder: Path, ids: Sequence[int]) -> DataSource:
    """Pairs with a class each, as the Hub has them: ids, and their names beside."""
    texts = sentences(2 * len(ids))
    columns = {"premise": texts[::2], "hypothesis": texts[1::2], "label": ids}
    features = dict.fromkeys(("premise", "hypothesis"), datasets.Value("string"))
    features["label"] = datasets.ClassLabel(names=VERDICTS)
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).to_parquet(
        str(folder / "train.parquet")
    )
    return DataSource(str(folder))


@pytest.mark.parametrize(
    ("known", "order", "said"),
    [
        (None, [0, 1, 2], ""),
        (["CONTRADICTION", "NEUTRAL", "ENTAILMENT"], [2, 1, 0], ""),
        (["LABEL_0", "LABEL_1", "LABEL_2"], [0, 1, 2], "the model's labels have no names"),
        (["yes", "maybe", "no"], [0, 1, 2], "taken for each other in that order"),
    ],
    ids=["no model", "another order", "no names", "other names"],
)
def test_ids_of_classes_that_have_names_are_a_models_labels_of_those_names(
    folder: Path, known: list[str] | None, order: list[int], said: str
) -> None:
    """As of roberta-large-mnli and MNLI, whose ids run in opposite orders."""
    source, ids = verdicts(folder, [row % 3 for row in range(60)]), {}
    for rows in load_task("classification", source, known).splits.values():
        ids.update(zip(rows.texts, rows.labels, strict=True))
    assert [ids[text] for text in sentences(120)[::2]] == [order[row % 3] for row in range(60)]
    task = load_task("classification", source, known)
    assert task.labels == tuple(known or VERDICTS)
    assert said in task.note
    assert bool(task.note) == bool(said)


def test_a_row_of_no_class_is_refused_and_no_class_of_its_own(folder: Path) -> None:
    """SNLI's rows of which the annotators did not agree are -1."""
    source = verdicts(folder, [-1, *(row % 3 for row in range(59))])
    with pytest.raises(DataError, match=r"1 train row.* no label"):
        load_task("classification", source)
