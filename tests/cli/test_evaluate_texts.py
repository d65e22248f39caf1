"""Scores of texts from the command line: what it prints, and what it refuses in one line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ldsearch
from tests.translators import sentences

SIDE = {"layers": 1, "attention_heads": 1, "ffn_dim": 8}
BART = {"model_type": "bart", "d_model": 8, "max_position_embeddings": 32} | {
    f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in SIDE.items()
}


def test_a_score_of_texts_is_printed_with_its_signature(
    ldsearch: Ldsearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bart.json").write_text(json.dumps(BART))
    rows = [{"source": text, "target": text} for text in dict.fromkeys(sentences(40))]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trained = ("--data", "rows.jsonl", "--model", "bart.json", "--max-length", 16, "--keep-overlap")
    flags = ("--strategy", "plain", "--max_steps", 1, "--name", "t")
    done = ldsearch("train-supernet", "--task", "translation", *trained, *flags)
    assert done.code == 0, done.err
    how = ("--metric", "bleu", "--limit", 3, "--max-target", 5)
    done = ldsearch("evaluate", "runs/t", "--subnet", "full", *how)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "on 3 report examples" in said
    assert "difference +0.0000, 95% interval +0.0000 to +0.0000" in said
    assert "greedy, at most 5 tokens; sacreBLEU nrefs:1|" in said
    assert len(list(Path("runs/t/generated").glob("*/*.json"))) == 2  # texts, and how they were decoded


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--metric", "bleu"), "only translation and summarisation write texts"),
        (("--metric", "accuracy"), "no metric 'accuracy' for texts"),
        (("--metric", "bleu", "--frontier"), "takes no --subnet"),
        (("--frontier",), "are for a --metric of texts"),
        (("--limit", "3"), "are for a --metric of texts"),
        (("--beams", "4"), "are for a --metric of texts"),
    ],
)
def test_what_makes_no_sense_is_refused(
    ldsearch: Ldsearch, place: Path, flags: tuple[str, ...], says: str
) -> None:
    done = ldsearch("evaluate", "runs/tiny", "--subnet", "full", *flags)
    assert done.code == 2
    assert says in done.err
    assert not Path("runs/tiny/generated").exists()
