"""train-supernet: what it leaves; the reference code's choices end to end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from ldsearch.bench import Bench
from ldsearch.export.loading import load_exported
from ldsearch.options import TrainSupernet
from ldsearch.subnet import Subnet
from ldsearch.supernet.saliency import WEIGHTS_FILE
from ldsearch.training.recover import train_fixed
from ldsearch.training.saliency import fit_saliency
from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, read, rows, unsettle, weights


def assert_fitted(folder: str) -> None:
    """Its token score is that of the weights beside it."""
    bench = Bench.open(folder, "train")
    layers = list(bench.supernet.layers_of("encoder"))
    kept = [layer.token_score.clone() for layer in layers]
    rows = bench.task.encode("train", bench.tokenizer, bench.record.reference)
    fit_saliency(bench.supernet, bench.task, rows, bench.tokenizer, seed=bench.record.seed)
    for layer, own in zip(layers, kept, strict=True):
        assert bool(own.any())
        torch.testing.assert_close(own, layer.token_score, rtol=1e-3, atol=1e-6)


def test_a_trained_supernet_is_an_ordinary_model_with_the_names_of_its_labels(place: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained("runs/tiny")
    assert model.config.id2label == {0: "bad", 1: "good"}
    record = read(place / "runs/tiny/supernet.json")
    assert (record["blocks"], record["reference"], record["strategy"]) == (2, 16, "lengthdrop")
    assert [record["splits"][name]["examples"] for name in ("train", "search")] == [48, 6]
    assert (record["score"], record["training"]["plain_share"]) == ("learned", 0.4)
    arguments = record["training"]["arguments"]
    assert (arguments["num_train_epochs"], arguments["learning_rate"]) == (1, 5e-4)
    assert not (place / "runs/tiny/checkpoints").exists()


def test_a_learned_token_score_goes_from_training_to_export(ldsearch: Ldsearch, place: Path) -> None:
    train = (*TRAIN, *EPOCHS, "--genes", "lengths", "--learning_rate", "0.01", "--name", "learned")
    for words in (
        train,
        ("evolve", "--supernet", "runs/learned", "--evaluations", "8", "--budget", "0.9", "--name", "found"),
        ("export", "runs/found", "out"),
    ):
        outcome = ldsearch.done(*words)
        assert "UNEXPECTED" not in outcome.err  # what transformers says of tensors that it does not know
    assert_fitted("runs/learned")
    trained = Bench.open("runs/learned").supernet
    assert all(bool(layer.token_score.any()) for layer in trained.layers_of("encoder"))
    stock = AutoModelForSequenceClassification.from_pretrained("runs/learned").eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    assert torch.equal(stock(input_ids=ids).logits, trained.model(input_ids=ids).logits)
    assert load_exported("out").supernet.score == "learned"
    after = (*TRAIN, *EPOCHS, "--model", "runs/learned", "--token-score", "column", "--name", "after")
    ldsearch.done(*after)
    assert Bench.open("runs/after").supernet.score == "column"
    assert not (place / "runs/after" / WEIGHTS_FILE).exists()  # of another score it would be out of date


def test_a_start_without_a_token_score_and_a_training_without_steps_have_it_fitted_to_their_states(
    ldsearch: Ldsearch, place: Path
) -> None:
    words = (*TRAIN, "--genes", "lengths", "--name", "fitted")
    ldsearch.done(*TRAIN, *EPOCHS, "--token-score", "column", "--name", "column")
    fine_tuned = ("--model", "runs/column")  # which brings no weights of a score
    still = TrainSupernet(trainer={"max_steps": 1, "learning_rate": 0.0})
    halves = Subnet.of_encoder([0, 1], [12, 6], 16)
    train_fixed(Bench.open("runs/tiny"), Path("runs/again"), halves, still, start=Path("runs/column"))
    ldsearch.done(*words, *fine_tuned, "--max_steps", "0")
    before = weights(place / "runs/column")
    for name in ("again", "fitted"):
        after = weights(place / "runs" / name)
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert_fitted(f"runs/{name}")
    assert "not by ldsearch: the learned token score is fitted" in ldsearch("info", "runs/fitted").out
    ldsearch.done("evolve", "--supernet", "runs/fitted", "--evaluations", "6", "--name", "found")
    for refused in (("--token-score", "power", *fine_tuned), ()):  # no such score, no fine-tuned model
        said = ldsearch.refused(*words, *refused, "--max_steps", "0", "--name", "nothing")
        assert "--max_steps must be above 0, not 0" in said


def test_a_fine_tuned_classifier_keeps_its_head_and_its_labels(ldsearch: Ldsearch, place: Path) -> None:
    again = ("--model", "runs/tiny", "--learning_rate", "0", "--name", "again")
    ldsearch.done(*TRAIN, *EPOCHS, *again)
    before, after = weights(place / "runs/tiny"), weights(place / "runs/again")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert read(place / "runs/again/supernet.json")["labels"] == ["bad", "good"]


def test_norms_of_skipped_sublayers_stay_from_training_to_export(ldsearch: Ldsearch, place: Path) -> None:
    sublayers = ("--strategy", "layerdrop", "--drop-groups", "sublayer", "--skipped", "norm")
    ldsearch.done(*TRAIN, *EPOCHS, *sublayers, "--name", "normed")
    assert "of sublayer groups, norms stay" in ldsearch("info", "runs/normed").out
    unsettle(place / "runs/normed")
    search = ("evolve", "--supernet", "runs/normed", "--genes", "sublayer", "--evaluations", 4)
    ldsearch.done(*search, "--budget", "0.7", "--name", "found")
    bench = Bench.open("runs/normed")
    best = Subnet.from_json(json.dumps(read(place / "runs/found/best.json")["subnet"]))
    assert best.encoder.sublayers_off
    # A fresh process answers as the supernet does, or this fails.
    ldsearch.done("export", "runs/found", "exported")
    other = replace(bench.record, skipped="identity")
    other.save(place / "runs/normed")
    assert Bench.open("runs/normed").evaluator.fingerprint != bench.evaluator.fingerprint


def test_parity_trains_and_searches_as_the_reference_does(ldsearch: Ldsearch, place: Path) -> None:
    ldsearch.done(*TRAIN, *EPOCHS, "--parity", "--name", "reference")
    record = read(place / "runs/reference/supernet.json")
    assert (record["drop_bound"], record["length_mode"]) == ("1/5", "absolute")
    assert (record["score"], record["parity"]) == ("column-with-pads", True)
    plan = ldsearch("evolve", "--supernet", "runs/reference", "--parity", "--dry-run")
    # Two lengths of 2 to 16, never rising: (2..16) over (2..first).
    assert f"up to {sum(first - 1 for first in range(2, 17))} sub-networks" in plan.out
    ldsearch.done("evolve", "--supernet", "runs/reference", "--parity", "--name", "search")
    found = rows(place / "runs/search/trials.csv")
    assert {row["length_mode"] for row in found} == {"absolute", ""}
    assert len(found) == sum(first - 10 for first in range(13, 17))  # (16, 16) is the full model itself
    full = next(row for row in found if not row["lengths"])
    assert float(full["score"]) == pytest.approx(record["metrics"]["search_accuracy"])
