"""Distilled data: the teacher's own answers to the training rows, however often the work was killed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel, MarianMTModel

from ldsearch.commands.distill_data import distill_data
from ldsearch.errors import RunError
from ldsearch.options import DistillData
from ldsearch.tasks import DataSource, load_task
from ldsearch.work.progress import Counted, Progress
from tests.cli.conftest import ldsearch
from tests.cli.test_bad_input import expect_refusal
from tests.stops import ask_to_stop
from tests.translators import PAD, sentences, tiny_translator, word_tokenizer

__all__ = ["ldsearch"]  # a fixture of the command line's tests
TRAINED_ON = sentences(22, seed=2)
HELD_OUT = sentences(8, seed=3)
SMALL = {"beams": 2, "max_target": 10, "max_source": 20, "batch_size": 4}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
COMMAND = ["distill-data", "--data=data/train.jsonl", "--validation=data/validation.jsonl", *FLAGS]


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


def options_of(shared, out):
    return DistillData(model=str(shared / "teacher"), data=str(shared / "data"), out=out, **SMALL)


@pytest.fixture
def options(shared, tmp_path):
    return options_of(shared, tmp_path / "out/distilled.jsonl")


@pytest.fixture(scope="module")
def undisturbed(shared, tmp_path_factory):
    """What an uninterrupted run writes."""
    path = tmp_path_factory.mktemp("undisturbed") / "distilled.jsonl"
    distill_data(options_of(shared, path))
    return path.read_bytes()


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Batches(Progress):
    """Batches of 4 of the 22 rows: how many were left, how many are done; raises once enough are."""

    def __init__(self, enough=None):
        self.left, self.done, self.enough = None, 0, enough

    def phase(self, name, total):
        self.left = total
        self.check()

    def step(self):
        self.done += 1
        self.check()

    def check(self):
        if self.done == self.enough:
            raise KeyboardInterrupt


def kill(options, batches):
    with pytest.raises(KeyboardInterrupt):
        distill_data(options, Batches(batches))


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


@pytest.mark.parametrize("batches", [0, 3, 6])
def test_killed_and_run_again_wherever_its_inputs_lie_now_it_ends_at_the_same_bytes(
    options, undisturbed, tmp_path, batches
):
    kill(options, batches)
    assert not options.out.exists()
    moved = {name: shutil.copytree(getattr(options, name), tmp_path / name) for name in ("model", "data")}
    others = Batches()
    result = distill_data(replace(options, **{name: str(path) for name, path in moved.items()}), others)
    assert result["rows"] == 22
    assert options.out.read_bytes() == undisturbed
    assert others.left == others.done == 6 - batches
    assert sorted(files(options.out.parent)) == ["distilled.jsonl", "distilled.jsonl.json"]


@pytest.mark.parametrize(
    ("torn", "more", "left"),
    [
        (1, b"", (2,)),
        (30, b"", (2,)),
        (120, b"", (2, 3, 4)),
        (0, b"\0" * 40 + b"\n", (1,)),
        (0, b"7\n", (1,)),
    ],
)
def test_a_torn_journal_costs_the_batches_it_tore_and_a_crashed_machines_zeros_none(
    options, undisturbed, torn, more, left
):
    kill(options, 4)
    journal = options.out.with_name("distilled.jsonl.part")
    whole = journal.read_bytes()
    journal.write_bytes(whole[: len(whole) - torn] + more)
    kill(options, 1)  # what that decoded must not stand behind the torn line
    others = Batches()
    distill_data(options, others)
    assert others.left in left
    assert options.out.read_bytes() == undisturbed


def test_what_is_done_is_not_done_again_and_says_what_it_was_made_from(options, monkeypatch):
    first = distill_data(options)
    before = files(options.out.parent)
    monkeypatch.setattr("ldsearch.commands.distill_data.decode_batches", None)
    assert distill_data(options) == first
    assert files(options.out.parent) == before
    record = json.loads(before["distilled.jsonl.json"])
    assert record["model"] == options.model
    assert Path(record["data"]["data"]) == Path(options.data)


def test_anything_else_is_refused_and_touches_nothing(options, tmp_path):
    kill(options, 2)
    before = files(options.out.parent)
    model, start, data = (tmp_path / name for name in ("model", "start", "data"))
    tiny_translator("marian", seed=5).save_pretrained(model)
    word_tokenizer().save_pretrained(model)
    shutil.copytree(options.model, start)
    config = json.loads((start / "generation_config.json").read_text())
    (start / "generation_config.json").write_text(json.dumps(config | {"forced_bos_token_id": 7}))
    shutil.copytree(options.data, data)
    with (data / "train.jsonl").open("a") as file:
        file.write(pair("a tree never sees"))
    for changes, differs in (
        ({"model": str(model)}, "model"),
        ({"model": str(start)}, "token ids"),
        ({"data": str(data)}, "sources"),
        ({"limit": 21}, "sources"),
        ({"beams": 3}, "decoding"),
        ({"max_source": 19}, "source length"),
        ({"batch_size": 5}, "batch size"),
    ):
        with pytest.raises(RunError, match=rf"\(other {differs}\)"):
            distill_data(replace(options, **changes))
    assert files(options.out.parent) == before


def test_a_limit_takes_the_first_rows(options, undisturbed):
    assert distill_data(replace(options, limit=5))["rows"] == 5
    assert options.out.read_bytes() == b"".join(undisturbed.splitlines(keepends=True)[:5])


def test_rows_cut_from_a_lone_file_are_not_decoded_and_targets_without_text_counted(
    options, tmp_path, capsys
):
    data = tmp_path / "all.jsonl"
    data.write_text("".join(map(pair, sentences(40, seed=9))))
    # Greedy search may end at once.
    result = distill_data(replace(options, data=str(data), beams=1, min_target=0))
    expected = load_task("translation", DataSource(str(data))).rows("train").sources
    pairs = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert [pair["source"] for pair in pairs] == [*expected]
    assert result["rows"] == len(expected) < 40
    assert result["blank"] == sum(pair["target"] == "" for pair in pairs) > 0
    said = capsys.readouterr()
    assert f"note: {data} has no validation rows of its own" in said.err
    assert "--validation <the original validation file>" in said.out


def test_a_damaged_record_is_refused(options, tmp_path):
    (tmp_path / "new.jsonl.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        distill_data(replace(options, out=tmp_path / "new.jsonl"))


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
    done = ldsearch.done(*COMMAND, "teacher", "--out", "new/distilled.jsonl")
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
    assert ldsearch.done(*COMMAND, "teacher", "--out", "d.jsonl").err == ""


def test_a_signal_waits_for_the_batch_under_way_and_is_told_how_to_go_on(ldsearch, here, monkeypatch):
    monkeypatch.setattr(Counted, "step", lambda bars: ask_to_stop())
    stopped = ldsearch(*COMMAND, "teacher", "--out", "d.jsonl")
    assert stopped.code == 143
    assert stopped.err.endswith("\ninterrupted: run the same command again; nothing decoded is lost\n")
    assert len(Path("d.jsonl.part").read_text().splitlines()) == 1
    assert not Path("d.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("teacher --task classification", "use translation or summarisation"),
        ("teacher --label-column fr", "no column 'fr'; it has source, target"),
        ("teacher --beams 0", "1 beam or more"),
        ("teacher --max-source 65", "64 positions"),
        ("teacher --batch-size 0", "--batch-size"),
        ("teacher --limit 0", "--limit"),
        ("teacher --out distilled.csv", "is a .jsonl file"),
        ("teacher --out data/validation.jsonl", "exists and is not ldsearch's"),
        ("teacher --out data/train.jsonl/d.jsonl", "cannot write"),
        ("encoder", "encoder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(ldsearch, here, words, says):
    assert says in expect_refusal(ldsearch, here, *COMMAND, "--out", "d.jsonl", *words.split())
