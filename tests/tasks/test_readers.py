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


def test_cola_has_no_header_and_loses_no_row(tmp_path: Path) -> None:
    texts = sentences(60)
    texts[4] = f'"{texts[4]}'
    rows = [("gj04", index // 3 % 2, "*" if index % 3 else "", text) for index, text in enumerate(texts)]
    (tmp_path / "train.tsv").write_text(unquoted(rows))
    task = load_task("classification", DataSource(str(tmp_path / "train.tsv")))
    found = {
        text: task.labels[label]
        for split in task.splits.values()
        for text, label in zip(split.texts, split.labels, strict=True)
    }
    assert found == {text: str(label) for _, label, _, text in rows}
    # As GLUE's zip has it: the test file has a header, and no labels.
    (tmp_path / "dev.tsv").write_text(unquoted([("gj04", 1, "", text) for text in sentences(20, 1)]))
    (tmp_path / "test.tsv").write_text(unquoted([("index", "sentence"), (0, '"one')]))
    task = load_task("classification", DataSource(str(tmp_path)))
    assert {name: len(rows) for name, rows in task.splits.items()} == {
        "train": 60,
        "search": 10,
        "report": 10,
    }


GLUE = {
    "mnli": (["index", "promptID", "sentence1_parse", "sentence1", "sentence2", "label1", "gold_label"], 3),
    "mrpc": (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], 3),
    "qnli": (["index", "question", "sentence", "label"], 1),
    "qqp": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], 3),
    "stsb": (["index", "genre", "source1", "sentence1", "sentence2", "score"], 3),
}


@pytest.mark.parametrize("name", GLUE)
def test_pairs_of_glue_are_found_in_its_own_layouts(tmp_path: Path, name: str) -> None:
    columns, first = GLUE[name]
    one, two, label = sentences(40), sentences(40, 1), 0 if name == "mrpc" else len(columns) - 1
    rows = [[str(row)] * len(columns) for row in range(40)]
    for row, own in enumerate(rows):
        own[first : first + 2] = one[row], two[row]
        own[label] = f"{row / 10}" if name == "stsb" else "xyz"[row % 3]
    (tmp_path / "train.tsv").write_text("\ufeff" + unquoted([columns, *rows]))
    task = load_task("regression" if name == "stsb" else "classification", DataSource(str(tmp_path)))
    found = {
        (text, pair, str(value) if name == "stsb" else task.labels[value])
        for split in task.splits.values()
        for text, pair, value in zip(split.texts, split.pairs, split.labels, strict=True)
    }
    assert found == {(one[row], two[row], rows[row][label]) for row in range(40)}


@pytest.mark.parametrize("task", ["classification", "multi-label"])
def test_lines_of_fasttext_are_rows(tmp_path: Path, task: str) -> None:
    texts, several = sentences(40), task == "multi-label"
    given = [["x", "y"] if several and row % 2 else ["xyz"[row % 3]] for row in range(40)]
    lines = [
        f"{' '.join(f'__label__{n}' for n in own)} {text}" for own, text in zip(given, texts, strict=True)
    ]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    found = load_task(task, DataSource(str(tmp_path)))
    assert found.labels == ("x", "y", "z")
    for split in found.splits.values():
        for text, label in zip(split.texts, split.labels, strict=True):
            own = given[texts.index(text)]
            names = [name for name, on in zip("xyz", label, strict=True) if on] if several else ["xyz"[label]]
            assert names == own
    (tmp_path / "train.txt").write_text("\n".join(f"__label__x {line}" for line in lines))
    if not several:
        with pytest.raises(DataError, match="several labels: --task multi-label"):
            load_task(task, DataSource(str(tmp_path)))


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


def squad() -> tuple[dict[str, object], list[tuple[str, str, str]]]:
    """A file as SQuAD's, and its contexts, questions and answers."""
    articles, expected = [], []
    for article in range(8):
        paragraphs = []
        for context in sentences(5, article):
            words = context.split()
            answers = [{"answer_start": context.index(word), "text": word} for word in words[1:3]]
            qas = [{"id": f"{context}{n}", "question": f"{word}?", "answers": [answer]}
                   for n, (word, answer) in enumerate(zip("ab", answers, strict=True))]  # fmt: skip
            expected += [
                (context, f"{word}?", answer["text"]) for word, answer in zip("ab", answers, strict=True)
            ]
            paragraphs.append({"context": context, "qas": qas})
        articles.append({"title": str(article), "paragraphs": paragraphs})
    return {"data": articles, "version": "1.1"}, expected


def test_squad_as_it_is_distributed(tmp_path: Path) -> None:
    content, expected = squad()
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / name).write_text(json.dumps(content))
    for data in (tmp_path / "train-v1.1.json", tmp_path):
        task = load_task("questions", DataSource(str(data), keep_overlap=True))
        found = {
            (context, question, answer.text)
            for split in task.splits.values()
            for context, question, (answer,) in zip(
                split.contexts, split.questions, split.answers, strict=True
            )
        }
        assert found == set(expected)


def test_rows_of_json_may_lie_under_data_but_not_in_several_tables(tmp_path: Path) -> None:
    rows = [{"text": text, "label": index % 2} for index, text in enumerate(sentences(4))]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": 1, "data": rows}))
    assert read_file(path).to_dict("records") == rows
    path.write_text(json.dumps({"train": rows, "words": rows[:2]}))
    assert "several tables, train, words" in refusal(path, "classification")
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


def test_a_refusal_names_what_helps(tmp_path: Path) -> None:
    def said(
        rows: Sequence[dict[str, object]],
        task: str = "classification",
        validation: str | None = None,
        **columns: str,
    ) -> str:
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return refusal(path, task, validation, **columns)

    one, two = sentences(40), sentences(40, 1)
    pairs = [
        {"first": a, "second": b, "label": row % 2} for row, (a, b) in enumerate(zip(one, two, strict=True))
    ]
    assert "--pair-column" in said(pairs)
    scores = [{"text": text, "score": row / 8} for row, text in enumerate(one)]
    assert "--task regression" in said(scores)
    assert "--task regression" in said(scores, label="score")
    # Few enough numbers to be classes; other rows have one more.
    coarse = [{"text": text, "score": row % 3 / 8} for row, text in enumerate(one)]
    held = tmp_path / "held.csv"
    held.write_text("text,score\n" + "".join(f"{text},2.083\n" for text in two))
    assert "2.083 (numbers to be predicted as numbers are --task regression)" in said(
        coarse, validation=str(held), label="score"
    )
    lists = [{"tokens": text.split(), "labels": ["O"] * 5} for text in one]
    assert "--task multi-label" in said(lists, text="tokens")
    assert "--task tokens" in said(lists, text="tokens")
    sentence = [{"text": text, "labels": ["B-X", "O", "O", "O", "O"]} for text in one]
    assert "no list of words" in said(sentence, "tokens", text="text")
    assert "one column, of lists" in said(
        [{"text": text, "joy": 1, "anger": 0} for text in one], "multi-label"
    )


def test_words_and_tags_a_line_are_read_from_text_and_no_texts_with_labels(tmp_path: Path) -> None:
    texts = sentences(40)
    blocks = [
        "\n".join(f"{word} NN {'B-X' if word == text.split()[0] else 'O'}" for word in text.split())
        for text in texts
    ]
    content = "\n\n".join(["-DOCSTART- -X- O", *blocks]) + "\n"
    (tmp_path / "a.txt").write_bytes(content.replace("\n", "\r\n").encode("utf-8-sig"))
    task = load_task("tokens", DataSource(str(tmp_path / "a.txt")))
    assert task.labels == ("B-X", "O")
    assert {" ".join(words) for rows in task.splits.values() for words in rows.words} == set(texts)
    assert all(tags == (0, 1, 1, 1, 1) for rows in task.splits.values() for tags in rows.tags)
    assert "--task tokens" in refusal(tmp_path / "a.txt", "classification")


def test_languages_in_one_column_are_the_columns_of_a_translation(tmp_path: Path) -> None:
    one, two = sentences(40), sentences(40, 1)
    rows = [{"id": 1, "translation": {"de": a, "en": b}} for a, b in zip(one, two, strict=True)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    task = load_task("translation", DataSource(str(path)))
    found = {
        pair for split in task.splits.values() for pair in zip(split.sources, split.targets, strict=True)
    }
    assert found == {(a, (b,)) for a, b in zip(one, two, strict=True)}


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
