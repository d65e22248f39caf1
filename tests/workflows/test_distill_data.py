"""Distilled data: the teacher's own answers to the training rows, however often the work was killed."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import MarianMTModel

from ldsearch.commands.distill_data import DistillOptions, distill_data
from ldsearch.decoding import Decoding
from ldsearch.errors import DataError, RunError
from ldsearch.interruption import Interrupted
from ldsearch.progress import NoProgress
from ldsearch.tasks import DataSource, load_task
from tests.translators import PAD, sentences, tiny_translator, word_tokenizer

TRAINED_ON = sentences(22, seed=2)
HELD_OUT = sentences(8, seed=3)


def pair(source):
    return json.dumps({"source": source, "target": f"ein {source}"}) + "\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A teacher, and data of which two training rows are held-out rows too."""
    place = tmp_path_factory.mktemp("shared")
    tiny_translator("marian").save_pretrained(place / "teacher")
    word_tokenizer().save_pretrained(place / "teacher")
    (place / "data").mkdir()
    rows = [*TRAINED_ON[:10], HELD_OUT[0], *TRAINED_ON[10:], HELD_OUT[1]]
    (place / "data/train.jsonl").write_text("".join(map(pair, rows)))
    (place / "data/validation.jsonl").write_text("".join(map(pair, HELD_OUT)))
    return place


@pytest.fixture
def options(shared):
    return DistillOptions(
        model=str(shared / "teacher"),
        source=DataSource(str(shared / "data")),
        decoding=Decoding(beams=2, min_length=1, max_length=10),
        max_source=20,
        batch_size=4,
    )


@pytest.fixture(scope="module")
def undisturbed(shared, tmp_path_factory):
    """What an uninterrupted run writes with ``options``."""
    path = tmp_path_factory.mktemp("undisturbed") / "distilled.jsonl"
    options = DistillOptions(
        str(shared / "teacher"),
        DataSource(str(shared / "data")),
        decoding=Decoding(beams=2, min_length=1, max_length=10),
        max_source=20,
        batch_size=4,
    )
    distill_data(path, options)
    return path.read_bytes()


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Batches(NoProgress):
    """Batches of 4 of the 22 rows: how many were left, how many are done; raises once enough are."""

    def __init__(self, enough=None, stop=KeyboardInterrupt):
        self.left, self.done, self.enough, self.stop = None, 0, enough, stop

    def phase(self, name, total):
        self.left = total
        self.check()

    def step(self):
        self.done += 1
        self.check()

    def check(self):
        if self.done == self.enough:
            if self.stop is KeyboardInterrupt:
                raise KeyboardInterrupt
            signal.raise_signal(self.stop)


def test_each_training_source_has_the_target_that_stock_generation_gives_it(
    shared, options, undisturbed, tmp_path
):
    teacher, tokenizer = MarianMTModel.from_pretrained(shared / "teacher"), word_tokenizer()
    teacher.generation_config.forced_eos_token_id = None
    pairs = [json.loads(line) for line in undisturbed.decode().splitlines()]
    assert [pair["source"] for pair in pairs] == TRAINED_ON
    assert len({pair["target"] for pair in pairs}) > 5
    for found in pairs:
        answer = teacher.generate(
            **tokenizer(found["source"], return_tensors="pt"),
            num_beams=2,
            early_stopping=True,
            min_new_tokens=1,
            max_new_tokens=10,
            bad_words_ids=[[PAD]],
        )
        assert found["target"] == tokenizer.decode(answer[0], skip_special_tokens=True)


def test_a_training_on_it_trains_on_its_rows(shared, options, undisturbed, tmp_path):
    (tmp_path / "distilled.jsonl").write_bytes(undisturbed)
    validation = str(shared / "data/validation.jsonl")
    # Its targets are words at random, which now and then lie in a held-out row.
    task = load_task(
        "translation", DataSource(str(tmp_path / "distilled.jsonl"), None, validation, keep_overlap=True)
    )
    original = load_task("translation", options.source)
    assert task.rows("train").sources == original.rows("train").sources
    assert not any(target.startswith("ein ") for (target,) in task.rows("train").targets)
    assert all(target.startswith("ein ") for (target,) in task.rows("search").targets)


@pytest.mark.parametrize("batches", [0, 1, 3, 6])
def test_killed_and_run_again_it_ends_at_the_same_bytes(options, undisturbed, tmp_path, batches):
    out = tmp_path / "distilled.jsonl"
    with pytest.raises(KeyboardInterrupt):
        distill_data(out, options, Batches(batches))
    assert not out.exists()
    others = Batches()
    found = distill_data(out, options, others)
    assert out.read_bytes() == undisturbed
    assert others.left == others.done == 6 - batches
    assert sorted(files(tmp_path)) == ["distilled.jsonl", "distilled.jsonl.json"]
    assert (found.out, found.rows, found.cut) == (out, 22, False)


@pytest.mark.parametrize("torn", [1, 30, 120])
def test_a_torn_journal_costs_the_batches_it_tore(options, undisturbed, tmp_path, torn):
    out = tmp_path / "distilled.jsonl"
    with pytest.raises(KeyboardInterrupt):
        distill_data(out, options, Batches(4))
    journal = tmp_path / "distilled.jsonl.part"
    journal.write_bytes(journal.read_bytes()[:-torn])
    others = Batches()
    distill_data(out, options, others)
    assert others.left in (3, 4, 5)
    assert out.read_bytes() == undisturbed


def test_zeros_that_a_crashed_machine_left_in_the_journal_do_not_matter(options, undisturbed, tmp_path):
    out = tmp_path / "distilled.jsonl"
    with pytest.raises(KeyboardInterrupt):
        distill_data(out, options, Batches(2))
    with (tmp_path / "distilled.jsonl.part").open("ab") as journal:
        journal.write(b"\0" * 40 + b"\n" + b"7\n")
    distill_data(out, options)
    assert out.read_bytes() == undisturbed


def test_a_signal_waits_for_the_batch_under_way(options, undisturbed, tmp_path):
    out = tmp_path / "distilled.jsonl"
    with pytest.raises(Interrupted):
        distill_data(out, options, Batches(2, signal.SIGTERM))
    assert len((tmp_path / "distilled.jsonl.part").read_text().splitlines()) == 8
    distill_data(out, options)
    assert out.read_bytes() == undisturbed


def test_what_is_done_is_not_done_again(options, tmp_path, monkeypatch):
    out = tmp_path / "distilled.jsonl"
    first = distill_data(out, options)
    before = files(tmp_path)
    monkeypatch.setattr("ldsearch.commands.distill_data.decode_batches", None)
    assert distill_data(out, options) == first
    assert files(tmp_path) == before


def another_model(options, place):
    tiny_translator("marian", seed=5).save_pretrained(place)
    word_tokenizer().save_pretrained(place)
    return replace(options, model=str(place)), "model"


def another_start(options, place):
    shutil.copytree(options.model, place)
    config = json.loads((place / "generation_config.json").read_text())
    (place / "generation_config.json").write_text(json.dumps(config | {"forced_bos_token_id": 7}))
    return replace(options, model=str(place)), "token ids"


def other_data(options, place):
    shutil.copytree(options.source.data, place)
    with (place / "train.jsonl").open("a") as file:
        file.write(pair("a tree never sees"))
    return replace(options, source=DataSource(str(place))), "sources"


CHANGES = (
    another_model,
    another_start,
    other_data,
    lambda options, place: (replace(options, limit=21), "sources"),
    lambda options, place: (replace(options, decoding=Decoding(beams=3, max_length=10)), "decoding"),
    lambda options, place: (replace(options, max_source=19), "source length"),
    lambda options, place: (replace(options, batch_size=5), "batch size"),
)


@pytest.mark.parametrize("change", CHANGES, ids=["model", "ids", "data", "limit", "beams", "source", "batch"])
def test_anything_else_is_refused_and_touches_nothing(options, tmp_path, change):
    out = tmp_path / "out/distilled.jsonl"
    with pytest.raises(KeyboardInterrupt):
        distill_data(out, options, Batches(2))
    before = files(out.parent)
    other, differs = change(options, tmp_path / "other")
    with pytest.raises(RunError, match=rf"made from something else \(its {differs} differ\)"):
        distill_data(out, other)
    assert files(out.parent) == before


def test_the_same_model_and_data_elsewhere_are_the_same(options, undisturbed, tmp_path):
    out = tmp_path / "out/distilled.jsonl"
    with pytest.raises(KeyboardInterrupt):
        distill_data(out, options, Batches(2))
    shutil.copytree(options.model, tmp_path / "moved")
    shutil.copytree(options.source.data, tmp_path / "moved-data")
    others = Batches()
    moved = replace(options, model=str(tmp_path / "moved"), source=DataSource(str(tmp_path / "moved-data")))
    distill_data(out, moved, others)
    assert others.left == 4
    assert out.read_bytes() == undisturbed


def test_a_limit_takes_the_first_rows(options, undisturbed, tmp_path):
    out = tmp_path / "distilled.jsonl"
    assert distill_data(out, replace(options, limit=5)).rows == 5
    assert out.read_bytes() == b"".join(undisturbed.splitlines(keepends=True)[:5])


def test_rows_cut_from_a_lone_file_are_not_decoded_and_targets_without_text_counted(options, tmp_path):
    (tmp_path / "all.jsonl").write_text("".join(map(pair, sentences(40, seed=9))))
    greedy = Decoding(max_length=10)  # may end at once
    source = DataSource(str(tmp_path / "all.jsonl"))
    found = distill_data(tmp_path / "out.jsonl", replace(options, source=source, decoding=greedy))
    expected = list(load_task("translation", source).rows("train").sources)
    pairs = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [pair["source"] for pair in pairs] == expected
    assert found.rows == len(expected) < 40
    assert found.cut
    assert found.blank == sum(pair["target"] == "" for pair in pairs) > 0


def test_another_file_is_never_overwritten(options, tmp_path):
    out = tmp_path / "thesis.jsonl"
    out.write_text("years of work")
    with pytest.raises(RunError, match="exists and is not ldsearch's"):
        distill_data(out, options)
    assert files(tmp_path) == {"thesis.jsonl": b"years of work"}
    with pytest.raises(RunError, match=r"is a \.jsonl file"):
        distill_data(tmp_path / "distilled.csv", options)
    (tmp_path / "new.jsonl.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        distill_data(tmp_path / "new.jsonl", options)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"task": "masked"}, "asks for no text"),
        ({"limit": 0}, "--limit"),
        ({"batch_size": 0}, "--batch-size"),
    ],
)
def test_options_that_make_no_sense(options, fields, says):
    with pytest.raises(DataError, match=says):
        replace(options, **fields)


def test_the_record_says_what_it_was_made_from(options, tmp_path):
    distill_data(tmp_path / "distilled.jsonl", options)
    record = json.loads((tmp_path / "distilled.jsonl.json").read_text())
    assert record["model"] == options.model
    assert Path(record["data"]["data"]) == Path(options.source.data)
    assert record["identity"]["decoding"]["beams"] == 2
