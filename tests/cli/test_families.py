"""Families with paths of their own from a folder to files, as a user types it: train, evolve, export."""

from pathlib import Path

import pytest

from ldsearch.supernet.folder import save_model
from ldsearch.tasks.tokenizer import train_wordpiece
from tests.cli.conftest import Ldsearch, reviews, rows_of, write
from tests.tiny import tiny_encoder_decoder, tiny_model
from tests.translators import EOS, sentences, word_tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mpnet", "deberta-v2", "albert"])
def test_from_a_folder_to_files(ldsearch: Ldsearch, bare: Path, family: str) -> None:
    model = tiny_model(family, blocks=3, labels=2)
    save_model(model, train_wordpiece(reviews().splitlines(), 60), bare / "model")
    Path("data.csv").write_text(reviews())
    data = ("--data", "data.csv", "--max-length", 16, "--max_steps", 2, "--name", "tiny")
    ldsearch.done("train-supernet", "--model", "model", *data)
    search = ("--evaluations", 6, "--budget", 0.9, "--name", "found")
    ldsearch.done("evolve", "--supernet", "runs/tiny", *search)
    ldsearch.done("export", "runs/found", "out/hf")
    # By name: where int8 is the fastest, six rows of a hardly trained model are too few to agree on.
    ldsearch.done("export", "runs/found", "out/onnx", "--format", "onnx", "--runtime", "onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "head", "task"),
    [
        ("blenderbot", "Seq2SeqLM", "translation"),
        ("t5", "Seq2SeqLM", "translation"),
        ("t5", "TokenClassification", "tokens"),
        ("bart", "SequenceClassification", "classification"),
        ("mbart", "SequenceClassification", "classification"),
        ("mbart", "QuestionAnswering", "questions"),
    ],
)
def test_an_encoder_decoder_from_a_folder_to_a_folder(
    ldsearch: Ldsearch, bare: Path, family: str, head: str, task: str
) -> None:
    labels = {"tokens": ("O", "B-X"), "classification": ("bad", "good")}.get(task, ())
    named: dict[str, object] = {"id2label": dict(enumerate(labels))} if labels else {}
    ends = {"eos_token_id": EOS, "pad_token_id": 1, "decoder_start_token_id": EOS}
    writes = task == "translation"
    tokenizer = word_tokenizer() if writes else train_wordpiece(reviews().splitlines(), 60)
    stacks = ("num_layers", "num_decoder_layers") if family == "t5" else ("encoder_layers", "decoder_layers")
    named |= {**dict.fromkeys(stacks, 2), **(ends if writes else {})}
    model = tiny_encoder_decoder(family, head, vocab_size=80, **named)
    save_model(model, tokenizer, bare / "model")
    pairs = [{"de": text, "en": f"the {text}"} for text in sentences(80)]
    write(Path("rows.jsonl"), pairs if writes else rows_of(task))
    genes = "depth" if family == "blenderbot" else "depth+lengths"
    how = ("--strategy", "flexible-depth") if family == "blenderbot" else ("--genes", genes)
    data = ("--data", "rows.jsonl", "--task", task, "--keep-overlap", "--max-length", 24, *how)
    ldsearch.done("train-supernet", "--model", "model", *data, "--max_steps", 2, "--name", "tiny")
    search = ("--evaluations", 4, "--budget", 0.9, "--genes", genes, "--name", "found")
    ldsearch.done("evolve", "--supernet", "runs/tiny", *search)
    ldsearch.done("evaluate", "runs/found")
    ldsearch.done("export", "runs/found", "out")
