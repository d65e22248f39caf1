"""Numbers one can trust: no stale measurement, no space that was never trained, the best checkpoint kept."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, read


def test_with_changed_weights_or_configuration_it_is_another_model_and_measured_again(
    ldsearch: Ldsearch, place: Path
) -> None:
    ldsearch.done("evolve", "--strategy", "every-other")
    before = read(place / "runs/tiny-every-other/best.json")["fingerprint"]
    path = place / "runs/tiny/config.json"
    plain = path.read_text()
    path.write_text(json.dumps({**json.loads(plain), "hidden_act": "relu"}))
    assert "differs in fingerprint" in ldsearch.refused("evolve", "--strategy", "every-other")
    path.write_text(plain)
    path = place / "runs/tiny/model.safetensors"
    weights = load_file(path)
    weights["classifier.weight"] = -weights["classifier.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    assert "differs in fingerprint" in ldsearch.refused("evolve", "--strategy", "every-other")
    ldsearch.done("evolve", "--strategy", "every-other", "--name", "again")
    run = read(place / "runs/again/run.json")
    assert [calls["cached"] for calls in run["this_call"].values()] == [0, 0]
    assert read(place / "runs/again/best.json")["fingerprint"] != before


def test_the_best_checkpoint_is_kept_where_the_trainer_is_asked_to(ldsearch: Ldsearch, place: Path) -> None:
    flags = ("--load_best_model_at_end", "--eval_strategy", "epoch", "--metric_for_best_model", "accuracy")
    # So high a rate that the second epoch undoes the first: the best is not the last.
    diverges = ("--num_train_epochs", "2", "--learning_rate", "0.5", "--save_total_limit", "2")
    ldsearch.done(*TRAIN, *EPOCHS, *diverges, *flags, "--name", "best")
    ldsearch.done(*TRAIN, *EPOCHS, *diverges, "--name", "last")
    best, last = (load_file(place / "runs" / name / "model.safetensors") for name in ("best", "last"))
    assert any(not torch.equal(best[name], last[name]) for name in best)


def test_only_checkpoints_are_removed_after_training(ldsearch: Ldsearch, place: Path) -> None:
    logs = place / "runs/logged/checkpoints/runs"
    logs.mkdir(parents=True)
    (logs / "events").write_text("kept")
    first = json.loads((place / "runs/tiny/training.json").read_text())
    (place / "runs/logged/training.json").write_text(json.dumps(first))
    ldsearch.done(*TRAIN, *EPOCHS, "--name", "logged")
    assert [path.name for path in (place / "runs/logged/checkpoints").iterdir()] == ["runs"]


def test_an_answer_is_gone_as_soon_as_another_question_is_asked(ldsearch: Ldsearch, place: Path) -> None:
    ldsearch.done("evolve", "--budget", "0.9", "--evaluations", 4)
    folder = place / "runs/tiny-evolve"
    assert (folder / "best.json").is_file()
    assert ldsearch("evolve", "--at-least", "2", "--evaluations", 4).code == 2  # no accuracy is 2
    assert not (folder / "best.json").exists()
    assert "unfinished" in ldsearch("info", "runs/tiny-evolve").out
    assert ldsearch("evaluate", "runs/tiny-evolve").code == 2


def test_a_training_does_not_go_on_from_another_model(ldsearch: Ldsearch, place: Path) -> None:
    command = (*TRAIN, *EPOCHS, "--save_strategy", "steps", "--save_steps", "1", "--name", "changed")
    ldsearch.done(*command)
    (place / "runs/changed/supernet.json").unlink()  # as if it had been interrupted
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}))
    assert "another run, which differs in start" in ldsearch.refused(*command)
    (place / "config.json").write_text(json.dumps(config))
    ldsearch.done(*command)
