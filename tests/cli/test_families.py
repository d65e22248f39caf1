"""Families with paths of their own from a folder to files, as a user types it: train, evolve, export."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ldsearch.supernet.folder import save_model
from ldsearch.tasks.tokenizer import train_wordpiece
from tests.cli.conftest import Ldsearch, ldsearch, reviews
from tests.tiny import tiny_encoder_decoder, tiny_model
from tests.translators import EOS, sentences, word_tokenizer

__all__ = ["ldsearch"]


def encoder(family: str, folder: Path) -> None:
    model = tiny_model(family, blocks=3, labels=2)
    save_model(model, train_wordpiece(reviews().splitlines(), 60), folder)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mpnet", "deberta-v2", "albert"])
def test_from_a_folder_to_files(
    ldsearch: Ldsearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.chdir(tmp_path)
    encoder(family, tmp_path / "model")
    Path("data.csv").write_text(reviews())
    data = ("--data", "data.csv", "--max-length", 16, "--max_steps", 2, "--name", "tiny")
    done = [ldsearch("train-supernet", "--model", "model", *data)]
    search = ("--evaluations", 6, "--budget", 0.9, "--name", "found")
    done.append(ldsearch("evolve", "--supernet", "runs/tiny", *search))
    done.append(ldsearch("export", "runs/found", "out/hf"))
    # By name: where int8 is the fastest, six rows of a hardly trained model are too few to agree on.
    done.append(ldsearch("export", "runs/found", "out/onnx", "--format", "onnx", "--runtime", "onnx"))
    assert [(one.code, one.err[-500:] if one.code else "") for one in done] == [(0, "")] * len(done)


def rows_of(task: str) -> str:
    """Eighty rows of a task, as jsonl; a translation leaves the words as they are."""
    texts = [line.rpartition(",") for line in reviews(80).splitlines()[1:]]
    if task == "translation":
        texts = [(text, ",", "") for text in sentences(80)]
    made: dict[str, Callable[[str, str], dict[str, object]]] = {
        "translation": lambda text, label: {"de": text, "en": f"the {text}"},
        "classification": lambda text, label: {"text": text, "label": label},
        "tokens": lambda text, label: {
            "tokens": text.split(),
            "ner_tags": ["B-X" if word == "film" else "O" for word in text.split()],
        },
        "questions": lambda text, label: {
            "context": text,
            "question": "which one",
            "answers": {"text": [text.split()[-1]], "answer_start": [text.rindex(text.split()[-1])]},
        },
    }
    return "".join(json.dumps(made[task](text, label)) + "\n" for text, _, label in texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "head", "task"),
    [
        ("blenderbot", "Seq2SeqLM", "translation"),
        ("t5", "Seq2SeqLM", "translation"),
        ("t5", "TokenClassification", "tokens"),
        ("bart", "SequenceClassification", "classification"),
        ("mbart", "SequenceClassification", "classification"),
        ("bart", "QuestionAnswering", "questions"),
        ("mbart", "QuestionAnswering", "questions"),
    ],
)
def test_an_encoder_decoder_from_a_folder_to_a_folder(
    ldsearch: Ldsearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, head: str, task: str
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = {"tokens": ("O", "B-X"), "classification": ("bad", "good")}.get(task, ())
    named: dict[str, object] = {"id2label": dict(enumerate(labels))} if labels else {}
    ends = {"eos_token_id": EOS, "pad_token_id": 1, "decoder_start_token_id": EOS}
    writes = task == "translation"
    tokenizer = word_tokenizer() if writes else train_wordpiece(reviews().splitlines(), 60)
    model = tiny_encoder_decoder(family, head, vocab_size=80, **named, **(ends if writes else {}))
    save_model(model, tokenizer, tmp_path / "model")
    Path("rows.jsonl").write_text(rows_of(task))
    genes = "depth" if family == "blenderbot" else "depth+lengths"
    how = ("--strategy", "flexible-depth") if family == "blenderbot" else ("--genes", genes)
    data = ("--data", "rows.jsonl", "--task", task, "--keep-overlap", "--max-length", 24, *how)
    done = [ldsearch("train-supernet", "--model", "model", *data, "--max_steps", 2, "--name", "tiny")]
    search = ("--evaluations", 6, "--budget", 0.9, "--genes", genes, "--name", "found")
    done.append(ldsearch("evolve", "--supernet", "runs/tiny", *search))
    done.append(ldsearch("evaluate", "runs/found"))
    done.append(ldsearch("export", "runs/found", "out"))
    assert [(one.code, one.err[-500:] if one.code else "") for one in done] == [(0, "")] * len(done)
