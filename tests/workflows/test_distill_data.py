"""Distilled data: the teacher's own answers to the training rows, however often the work was killed."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import MarianMTModel

from ldsearch.commands.distill_data import distill_data
from ldsearch.errors import RunError
from ldsearch.options import DistillData
from ldsearch.tasks import DataSource, load_task
from ldsearch.work.interruption import Interrupted
from ldsearch.work.progress import Progress
from tests.stops import ask_to_stop
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
def options(shared, tmp_path):
    return options_of(shared, tmp_path / "out" / "distilled.jsonl")


def options_of(shared, out):
    return DistillData(
        model=str(shared / "teacher"),
        data=str(shared / "data"),
        out=out,
        beams=2,
        max_target=10,
        max_source=20,
        batch_size=4,
    )


@pytest.fixture(scope="module")
def undisturbed(shared, tmp_path_factory):
    """What an uninterrupted run writes with ``options``."""
    path = tmp_path_factory.mktemp("undisturbed") / "distilled.jsonl"
    distill_data(options_of(shared, path))
    return path.read_bytes()


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Batches(Progress):
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
            ask_to_stop(self.stop)


def test_each_training_source_has_the_target_that_stock_generation_gives_it(shared, undisturbed):
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


def test_a_training_on_it_trains_on_its_rows(shared, undisturbed, tmp_path):
    (tmp_path / "distilled.jsonl").write_bytes(undisturbed)
    validation = str(shared / "data/validation.jsonl")
    # Its targets are words at random, which now and then lie in a held-out row.
    task = load_task(
        "translation", DataSource(str(tmp_path / "distilled.jsonl"), None, validation, keep_overlap=True)
    )
    original = load_task("translation", DataSource(str(shared / "data")))
    assert task.rows("train").sources == original.rows("train").sources
    assert not any(target.startswith("ein ") for (target,) in task.rows("train").targets)
    assert all(target.startswith("ein ") for (target,) in task.rows("search").targets)


@pytest.mark.parametrize("batches", [0, 3, 6])
def test_killed_and_run_again_it_ends_at_the_same_bytes(options, undisturbed, batches):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(batches))
    assert not options.out.exists()
    others = Batches()
    assert distill_data(options, others)["rows"] == 22
    assert options.out.read_bytes() == undisturbed
    assert others.left == others.done == 6 - batches
    assert sorted(files(options.out.parent)) == ["distilled.jsonl", "distilled.jsonl.json"]


@pytest.mark.parametrize("torn", [1, 30, 120])
def test_a_torn_journal_costs_the_batches_it_tore(options, undisturbed, torn):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(4))
    journal = options.out.with_name("distilled.jsonl.part")
    journal.write_bytes(journal.read_bytes()[:-torn])
    others = Batches()
    distill_data(options, others)
    assert others.left in (3, 4, 5)
    assert options.out.read_bytes() == undisturbed


def test_zeros_that_a_crashed_machine_left_in_the_journal_do_not_matter(options, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(2))
    with options.out.with_name("distilled.jsonl.part").open("ab") as journal:
        journal.write(b"\0" * 40 + b"\n" + b"7\n")
    distill_data(options)
    assert options.out.read_bytes() == undisturbed


def test_a_signal_waits_for_the_batch_under_way(options):
    with pytest.raises(Interrupted):
        distill_data(options, Batches(2, signal.SIGTERM))
    assert len(options.out.with_name("distilled.jsonl.part").read_text().splitlines()) == 2


def test_what_is_done_is_not_done_again_and_says_what_it_was_made_from(options, monkeypatch):
    first = distill_data(options)
    before = files(options.out.parent)
    monkeypatch.setattr("ldsearch.commands.distill_data.decode_batches", None)
    assert distill_data(options) == first
    assert files(options.out.parent) == before
    record = json.loads(before["distilled.jsonl.json"])
    assert record["model"] == options.model
    assert Path(record["data"]["data"]) == Path(options.data)
    assert record["identity"]["decoding"]["beams"] == 2


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
    shutil.copytree(options.data, place)
    with (place / "train.jsonl").open("a") as file:
        file.write(pair("a tree never sees"))
    return replace(options, data=str(place)), "sources"


CHANGES = (
    another_model,
    another_start,
    other_data,
    lambda options, place: (replace(options, limit=21), "sources"),
    lambda options, place: (replace(options, beams=3), "decoding"),
    lambda options, place: (replace(options, max_source=19), "source length"),
    lambda options, place: (replace(options, batch_size=5), "batch size"),
)


def test_anything_else_is_refused_and_touches_nothing(options, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(2))
    before = files(options.out.parent)
    for index, change in enumerate(CHANGES):
        other, differs = change(options, tmp_path / f"other-{index}")
        with pytest.raises(RunError, match=rf"\(other {differs}\)"):
            distill_data(other)
    assert files(options.out.parent) == before


def test_the_same_model_and_data_elsewhere_are_the_same(options, undisturbed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(2))
    shutil.copytree(options.model, tmp_path / "moved")
    shutil.copytree(options.data, tmp_path / "moved-data")
    others = Batches()
    distill_data(replace(options, model=str(tmp_path / "moved"), data=str(tmp_path / "moved-data")), others)
    assert others.left == 4
    assert options.out.read_bytes() == undisturbed


def test_a_limit_takes_the_first_rows(options, undisturbed):
    assert distill_data(replace(options, limit=5))["rows"] == 5
    assert options.out.read_bytes() == b"".join(undisturbed.splitlines(keepends=True)[:5])


def test_rows_cut_from_a_lone_file_are_not_decoded_and_targets_without_text_counted(options, tmp_path):
    (tmp_path / "all.jsonl").write_text("".join(map(pair, sentences(40, seed=9))))
    # Greedy search may end at once.
    result = distill_data(replace(options, data=str(tmp_path / "all.jsonl"), beams=1, min_target=0))
    expected = load_task("translation", DataSource(str(tmp_path / "all.jsonl"))).rows("train").sources
    pairs = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert [pair["source"] for pair in pairs] == [*expected]
    assert result["rows"] == len(expected) < 40
    assert result["blank"] == sum(pair["target"] == "" for pair in pairs) > 0


def test_another_file_is_never_overwritten(options, tmp_path):
    out = tmp_path / "thesis.jsonl"
    out.write_text("years of work")
    with pytest.raises(RunError, match="exists and is not ldsearch's"):
        distill_data(replace(options, out=out))
    assert out.read_bytes() == b"years of work"
    (tmp_path / "new.jsonl.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        distill_data(replace(options, out=tmp_path / "new.jsonl"))
