"""ldsearch distill-data: from a folder and two files to training data; bad input is one line and code 2."""

import json
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel

from ldsearch.work.progress import Counted
from tests.cli.conftest import Ldsearch
from tests.cli.test_bad_input import expect_refusal
from tests.translators import sentences, tiny_translator, word_tokenizer

SMALL = ("--max-source", 20, "--max-target", 10, "--batch-size", 4, "--beams", 2)
COMMAND = ("distill-data", "teacher", "--data", "train.jsonl", "--validation", "dev.jsonl", *SMALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator, an encoder, and pairs."""
    folder = tmp_path_factory.mktemp("made")
    tiny_translator("marian").save_pretrained(folder / "teacher")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=30, **sizes)).save_pretrained(folder / "encoder")
    for name in ("teacher", "encoder"):
        word_tokenizer().save_pretrained(folder / name)
    for name, count, seed in (("train", 10, 2), ("dev", 6, 3)):
        pairs = [{"de": text, "en": f"the {text}"} for text in sentences(count, seed)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with links to what was made."""
    place = tmp_path / "place"
    place.mkdir()
    for path in made.iterdir():
        (place / path.name).symlink_to(path)
    monkeypatch.chdir(place)
    return place


def test_it_says_what_it_wrote_and_how_to_train_on_it(ldsearch: Ldsearch, here: Path) -> None:
    done = ldsearch(*COMMAND, "--out", "new/distilled.jsonl")
    assert done.code == 0, done
    lines = [json.loads(line) for line in (here / "new/distilled.jsonl").read_text().splitlines()]
    assert [line["de"] for line in lines] == sentences(10, 2)
    said = " ".join(done.out.split())
    assert "new/distilled.jsonl: 10 pairs (beam 2, length penalty 1, 1 to 10 tokens)" in said
    flags = "--task translation --data new/distilled.jsonl --validation dev.jsonl --search-rows half"
    assert f"{flags} --model teacher" in said
    # A teacher of random weights seldom ends its sentences: 10 tokens are 9 and the end.
    endless = sum(len(line["en"].split()) >= 9 for line in lines)
    assert endless > 1
    assert f"note: {endless} of 10 targets run to the limit of 10 tokens: raise --max-target" in done.err


def test_targets_that_end_are_not_remarked_on(
    ldsearch: Ldsearch, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = ["one two three four five six seven eight"] * 10  # and the end: 9 of 10 tokens
    monkeypatch.setattr("ldsearch.commands.distill_data._decode", lambda *inputs: ended)
    Path("d.jsonl.part").touch()
    done = ldsearch(*COMMAND, "--out", "d.jsonl")
    assert done.code == 0, done
    assert done.err == ""


def test_rows_cut_from_a_lone_file_are_pointed_out(ldsearch: Ldsearch, here: Path) -> None:
    done = ldsearch("distill-data", "teacher", "--data", "train.jsonl", *SMALL, "--out", "d.jsonl")
    assert done.code == 0, done
    assert "note: train.jsonl has no validation rows of its own" in done.err
    assert "--validation <the original validation file>" in " ".join(done.out.split())


def test_an_interruption_says_how_to_go_on(
    ldsearch: Ldsearch, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(bars: Counted) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Counted, "step", once)
        stopped = ldsearch(*COMMAND, "--out", "d.jsonl")
    assert stopped.code == 130
    assert stopped.err.endswith("\ninterrupted: run the same command again; nothing decoded is lost\n")
    assert not (here / "d.jsonl").exists()
    ldsearch.done(*COMMAND, "--out", "d.jsonl")
    assert len((here / "d.jsonl").read_text().splitlines()) == 10


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--task", "classification"], "use translation or summarisation"),
        (["--label-column", "fr"], "no column 'fr'; it has de, en"),
        (["--beams", 0], "1 beam or more"),
        (["--max-source", 65], "64 positions"),
        (["--batch-size", 0], "--batch-size"),
        (["--limit", 0], "--limit"),
        (["--out", "distilled.csv"], "is a .jsonl file"),
        (["--out", "dev.jsonl"], "exists and is not ldsearch's"),
        (["--out", "train.jsonl/d.jsonl"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    ldsearch: Ldsearch, here: Path, flags: list[object], says: str
) -> None:
    assert says in expect_refusal(ldsearch, here, *COMMAND, "--out", "d.jsonl", *flags)


def test_what_is_no_encoder_decoder_is_named(ldsearch: Ldsearch, here: Path) -> None:
    message = expect_refusal(ldsearch, here, "distill-data", "encoder", *COMMAND[2:], "--out", "d.jsonl")
    assert "encoder" in message
