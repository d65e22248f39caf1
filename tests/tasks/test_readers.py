"""Files as people have them: read to the rows that were put in, or refused in a line that helps."""

import csv
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

import datasets
import pytest

from ldsearch.errors import DataError
from ldsearch.tasks import DataSource, load_task
from ldsearch.tasks.readers import read_file
from ldsearch.tasks.tables import Columns

# As in SST-2, CoLA and QNLI: marks that open a cell and never close, that close what was not opened, alone.
TEXTS = ['"good" they said', 'a 5" screen', '"never closed', "nothing", 'closed" here', '"', 'it\'s "all"']


def unquoted(rows: Sequence[Sequence[object]], mark: str = "\t") -> str:
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


def sentences(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(f"w{draw.randrange(10**6)}" for _ in range(5)) for _ in range(count)]


def refusal(path: Path, task: str, validation: str | None = None, **columns: str) -> str:
    with pytest.raises(DataError) as caught:
        load_task(task, DataSource(str(path), validation=validation, columns=Columns(**columns)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_quotation_marks_of_glue_are_characters(tmp_path: Path, start: str, ends: str) -> None:
    rows = [(text, index % 2) for index, text in enumerate(TEXTS)]
    path = tmp_path / "train.tsv"
    path.write_bytes((start + unquoted([("sentence", "label"), *rows])).replace("\n", ends).encode())
    table = read_file(path)
    assert list(table.columns) == ["sentence", "label"]
    assert table["sentence"].tolist() == TEXTS
    assert table["label"].tolist() == ["0", "1"] * 3 + ["0"]


def test_marks_that_close_by_chance_rows_later_take_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text('sentence\tlabel\n"one\t0\ntwo\t1\nthree"\t0\n')
    assert read_file(path)["sentence"].tolist() == ['"one', "two", 'three"']


@pytest.mark.parametrize("mark", [",", "\t", ";", "|"])
def test_cells_that_a_csv_writer_quoted_come_back(tmp_path: Path, mark: str) -> None:
    cells = ['say "x"', "two\nlines", f"a{mark} b", '"', '""', "", "plain", f'"{mark}"', ' "x" ']
    draw = random.Random(0)
    for number in range(50):
        rows = [[draw.choice(cells), draw.choice("ab"), draw.choice(cells)] for _ in range(9)]
        file = io.StringIO()
        csv.writer(file, delimiter=mark).writerows([["text", "label", "more"], *rows])
        path = tmp_path / (f"{number}.tsv" if mark == "\t" else f"{number}.csv")
        path.write_text(file.getvalue(), newline="")
        assert read_file(path).to_numpy().tolist() == rows


def test_a_csv_whose_open_mark_would_take_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"one,0\ntwo,1\nthree" four,0\n')
    assert "quotation mark" in refusal(path, "classification")


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "txt"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, kind: str, codec: str) -> None:
    contents = {
        "csv": "text\ngröße\n",
        "jsonl": '{"text": "größe"}\n',
        "json": '[{"text": "größe"}]',
        "txt": "größe\n",
    }
    path = tmp_path / f"a.{kind}"
    path.write_bytes(contents[kind].encode(codec))
    assert read_file(path).to_dict("list") == {"text": ["größe"]}


def test_another_encoding_is_refused_with_its_line_and_what_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\nplain,0\ngröße,1\n".encode("latin-1"))
    assert "line 3" in refusal(path, "classification")
    assert "iconv" in refusal(path, "classification")


def test_rows_of_json_may_lie_under_data_but_not_in_several_tables(tmp_path: Path) -> None:
    rows = [{"text": text, "label": index % 2} for index, text in enumerate(sentences(4))]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": 1, "data": rows}))
    assert read_file(path).to_dict("records") == rows
    held = tmp_path / "held.json"
    held.write_text(json.dumps({"train": rows, "test": rows[:2]}))
    with pytest.raises(DataError, match="several tables, train, test"):
        read_file(held)


@pytest.mark.parametrize("label", ["good", "1"])
def test_a_file_without_a_header_is_refused_also_where_a_row_is_named(tmp_path: Path, label: str) -> None:
    path, texts = tmp_path / "a.csv", sentences(40)
    path.write_text(unquoted([(text, label if row % 2 else "bad") for row, text in enumerate(texts, 1)], ","))
    assert "put a line of names before it, such as text and label" in refusal(path, "classification")
    assert "looks like a row" in refusal(path, "classification", text=texts[0], label=label)


@pytest.mark.parametrize("header", ["Text,LABEL", "text, label", "\ufeff Text ,Label"])
def test_capital_letters_and_spaces_of_a_header_do_not_matter(tmp_path: Path, header: str) -> None:
    path, texts = tmp_path / "a.csv", sentences(40)
    path.write_text(header + "\n" + unquoted([(text, row % 2) for row, text in enumerate(texts)], ","))
    task = load_task("classification", DataSource(str(path)))
    assert {text for rows in task.splits.values() for text in rows.texts} == set(texts)


@pytest.mark.parametrize("place", ["saved", "one", "shards", "train.parquet"])
def test_what_datasets_saved_keeps_the_names_of_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    # Ids in another order than the alphabet's; the last class is in no row.
    names = datasets.ClassLabel(names=["O", "B-X", "I-X", "B-Y"])
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(names)}
    )
    rows = [{"tokens": text.split(), "ner_tags": [1, 2, 0, 0, 0]} for text in sentences(40)]
    data, path = datasets.Dataset.from_list(rows, features=features), tmp_path / place
    if place == "saved":
        datasets.DatasetDict({"train": data}).save_to_disk(str(path))
    elif place == "one":
        data.save_to_disk(str(path))
    elif place == "shards":
        path.mkdir()
        for part in range(2):
            data.shard(2, part).to_parquet(str(path / f"train-0000{part}-of-00002.parquet"))
    else:
        data.to_parquet(str(path))
    task = load_task("tokens", DataSource(str(path)))
    assert task.labels == ("O", "B-X", "I-X", "B-Y")
    assert task.metric.name == "f1"  # of entities: with ids alone it would be the accuracy of words
    assert all(tags == (1, 2, 0, 0, 0) for split in task.splits.values() for tags in split.tags)
    # A supernet's record has the names, one of before this the ids.
    assert load_task("tokens", DataSource(str(path)), task.labels).splits == task.splits
    assert load_task("tokens", DataSource(str(path)), ("0", "1", "2")).splits == task.splits
