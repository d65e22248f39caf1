"""Distilled data: the teacher's own answers to the training rows, however often the work was killed.

At the end the command: what it says, and what it refuses.
"""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel, MarianMTModel

from ldsearch.commands.distill_data import distill_data
from ldsearch.errors import RunError
from ldsearch.options import DistillData
from ldsearch.tasks import DataSource, load_task
from ldsearch.work.interruption import Interrupted
from ldsearch.work.progress import Counted, Progress
from tests.cli.conftest import ldsearch
from tests.cli.test_bad_input import expect_refusal
from tests.stops import ask_to_stop
from tests.translators import PAD, sentences, tiny_translator, word_tokenizer

__all__ = ["ldsearch"]  # a fixture of the command line's tests
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


@pytest.mark.parametrize(
    ("torn", "more", "left"),
    [
        (1, b"", (3,)),
        (30, b"", (3,)),
        (120, b"", (3, 4, 5)),
        (0, b"\0" * 40 + b"\n", (2,)),
        (0, b"7\n", (2,)),
    ],
)
def test_a_torn_journal_costs_the_batches_it_tore_and_a_crashed_machines_zeros_none(
    options, undisturbed, torn, more, left
):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(4))
    journal = options.out.with_name("distilled.jsonl.part")
    whole = journal.read_bytes()
    journal.write_bytes(whole[: len(whole) - torn] + more)
    others = Batches()
    distill_data(options, others)
    assert others.left in left
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


def test_a_damaged_record_is_refused(options, tmp_path):
    (tmp_path / "new.jsonl.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        distill_data(replace(options, out=tmp_path / "new.jsonl"))


SMALL = ("--max-source", 20, "--max-target", 10, "--batch-size", 4, "--beams", 2)
DATA = ("--data", "data/train.jsonl", "--validation", "data/validation.jsonl")
COMMAND = ("distill-data", "teacher", *DATA, *SMALL, "--out", "d.jsonl")


@pytest.fixture
def here(shared, tmp_path, monkeypatch):
    """The working directory, with links to what is shared, and an encoder."""
    place = tmp_path / "place"
    place.mkdir()
    for name in ("teacher", "data"):
        (place / name).symlink_to(shared / name)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=30, **sizes)).save_pretrained(place / "encoder")
    word_tokenizer().save_pretrained(place / "encoder")
    monkeypatch.chdir(place)
    return place


def test_it_says_what_it_wrote_and_how_to_train_on_it(ldsearch, here, undisturbed):
    done = ldsearch.done(*COMMAND, "--out", "new/distilled.jsonl")
    assert (here / "new/distilled.jsonl").read_bytes() == undisturbed
    said = " ".join(done.out.split())
    assert "new/distilled.jsonl: 22 pairs (beam 2, length penalty 1, 1 to 10 tokens)" in said
    flags = "--task translation --data new/distilled.jsonl --validation data/validation.jsonl"
    assert f"{flags} --search-rows half --model teacher" in said
    # A teacher of random weights seldom ends its sentences: 10 tokens are 9 and the end.
    endless = sum(len(json.loads(line)["target"].split()) >= 9 for line in undisturbed.splitlines())
    assert endless > 1
    assert f"note: {endless} of 22 targets run to the limit of 10 tokens: raise --max-target" in done.err


def test_targets_that_end_are_not_remarked_on(ldsearch, here, monkeypatch):
    ended = ["one two three four five six seven eight"] * 22  # and the end: 9 of 10 tokens
    monkeypatch.setattr("ldsearch.commands.distill_data._decode", lambda *inputs: ended)
    Path("d.jsonl.part").touch()
    assert ldsearch.done(*COMMAND).err == ""


def test_rows_cut_from_a_lone_file_are_pointed_out(ldsearch, here):
    done = ldsearch.done("distill-data", "teacher", "--data", DATA[1], *SMALL, "--out", "d.jsonl")
    assert f"note: {DATA[1]} has no validation rows of its own" in done.err
    assert "--validation <the original validation file>" in " ".join(done.out.split())


def test_an_interruption_says_how_to_go_on(ldsearch, here, monkeypatch):
    def once(bars):
        raise KeyboardInterrupt

    monkeypatch.setattr(Counted, "step", once)
    stopped = ldsearch(*COMMAND)
    assert stopped.code == 130
    assert stopped.err.endswith("\ninterrupted: run the same command again; nothing decoded is lost\n")
    assert not (here / "d.jsonl").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--task classification", "use translation or summarisation"),
        ("--label-column fr", "no column 'fr'; it has source, target"),
        ("--beams 0", "1 beam or more"),
        ("--max-source 65", "64 positions"),
        ("--batch-size 0", "--batch-size"),
        ("--limit 0", "--limit"),
        ("--out distilled.csv", "is a .jsonl file"),
        ("--out data/validation.jsonl", "exists and is not ldsearch's"),
        ("--out data/train.jsonl/d.jsonl", "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(ldsearch, here, flags, says):
    assert says in expect_refusal(ldsearch, here, *COMMAND, *flags.split())


def test_what_is_no_encoder_decoder_is_named(ldsearch, here):
    assert "encoder" in expect_refusal(ldsearch, here, "distill-data", "encoder", *COMMAND[2:])
