"""Recovery: one sub-network trained on its own, with the score that it inherits."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ldsearch.bench import Bench
from ldsearch.disk.files import write_json
from ldsearch.errors import TrainingError
from ldsearch.options import TrainSupernet
from ldsearch.runs.run import newest_supernet
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import load_supernet
from ldsearch.training import train_supernet as training
from ldsearch.training.train_supernet import train_supernet
from ldsearch.trials.trial import Score
from tests.cli.conftest import Ldsearch, read, weights

PART = '{"version":1,"encoder":{"blocks":[0]}}'
RECOVER = ("train-supernet", "--model", "runs/tiny", "--subnet", PART, "--learning_rate", "1e-3")
RECOVER += ("--name", "recovered", "--max_steps", "4")


@pytest.fixture
def recovered(place: Path, ldsearch: Ldsearch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place with the recovered model, which is trained once."""
    kept = tmp_path_factory.getbasetemp() / "recovered-once"
    if not kept.exists():
        assert "inherited" in ldsearch.done(*RECOVER).out
        shutil.copytree(place / "runs/recovered", kept)
    shutil.copytree(kept, place / "runs/recovered", dirs_exist_ok=True)
    return place


def test_a_recovered_model_is_evaluated_and_exported_like_a_run(ldsearch: Ldsearch, recovered: Path) -> None:
    before, after = weights(recovered / "runs/tiny"), weights(recovered / "runs/recovered")
    assert not before["classifier.weight"].equal(after["classifier.weight"])
    kept = [name for name in before if ".layer.1." in name]
    assert kept
    assert all(before[name].equal(after[name]) for name in kept)
    assert "encoder blocks 0" in ldsearch("evaluate", "runs/recovered").out
    (recovered / "runs/tiny").rename(recovered / "elsewhere")  # an export needs no supernet
    ldsearch.done("export", "runs/recovered", "out")
    (recovered / "elsewhere").rename(recovered / "runs/tiny")
    assert "4 steps on its own, from the full model's logits" in (recovered / "out/README.md").read_text()
    # The full model is still the newest supernet to search.
    assert newest_supernet(recovered / "runs").name == "tiny"


@pytest.mark.parametrize(("after", "kept"), [(0.8, "inherited"), (0.9, "trained")])
def test_the_better_of_before_and_after_on_the_search_rows_is_kept(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch, after: float, kept: str
) -> None:
    scores = iter([Score(after), Score(0.85)])
    monkeypatch.setattr("ldsearch.training.recover.search_score", lambda *_: next(scores))
    outcome = ldsearch.done(*RECOVER)
    before, found = weights(place / "runs/tiny"), weights(place / "runs/recovered")
    assert all(before[name].equal(found[name]) for name in before) == (kept == "inherited")
    assert ("kept as it was" in outcome.out) == (kept == "inherited")
    told = ldsearch("info", "runs/recovered").out
    assert ("the weights from before were kept" in told) == (kept == "inherited")
    ldsearch.done("evaluate", "runs/recovered")
    ldsearch.done(*RECOVER)  # nothing is trained again: no scores are left


def test_the_same_recovery_again_trains_nothing_and_another_is_refused(
    ldsearch: Ldsearch, recovered: Path
) -> None:
    stamp = (recovered / "runs/recovered/model.safetensors").stat().st_mtime_ns
    assert ldsearch.done(*RECOVER).err == ""
    assert (recovered / "runs/recovered/model.safetensors").stat().st_mtime_ns == stamp
    for flags in (("--seed", 1), ("--teacher", "none"), ("--adam_beta1", 0.5)):
        assert "another run" in ldsearch.refused(*RECOVER, *flags)


def test_a_choice_of_the_report_rows_is_recovered_and_reported_on_the_search_rows(
    ldsearch: Ldsearch, place: Path
) -> None:
    ldsearch.done("evolve", "--swap", "--evaluations", 5)
    train = ("train-supernet", "--model", "runs/tiny-evolve-swap", "--max_steps", 2, "--name", "swapped")
    for command in (train, ("evaluate", "runs/swapped")):
        outcome = ldsearch.done(*command)
        assert "search examples" in outcome.out
        assert "report examples" not in outcome.out
    warned = ldsearch("evaluate", "runs/swapped", "--split", "report")
    assert "chose by these very examples" in warned.err


def test_a_recovered_model_is_compared_with_the_full_model_of_its_supernet(
    ldsearch: Ldsearch, recovered: Path
) -> None:
    path = recovered / "runs/recovered/model.safetensors"
    tensors = load_file(path)
    tensors["classifier.weight"] *= -1  # its own full model would now say the opposite
    tensors["classifier.bias"] *= -1
    save_file(tensors, path, metadata={"format": "pt"})

    def full_score(*target: object) -> str:
        out = ldsearch("evaluate", *target, "--split", "search").out
        return next(line for line in out.splitlines() if line.startswith("full model"))

    assert full_score("runs/recovered") == full_score("runs/tiny", "--subnet", "full")
    found = ldsearch("evaluate", "runs/recovered", "--split", "search").out
    assert "difference   +0.0000" not in found


def test_what_was_trained_for_one_sub_network_is_no_supernet_any_more(
    ldsearch: Ldsearch, recovered: Path
) -> None:
    for command in (
        ("evolve", "--supernet", "runs/recovered"),
        ("report", "runs/recovered", "--health"),
        ("train-supernet", "--model", "runs/recovered", "--subnet", PART, "--name", "twice"),
    ):
        said = ldsearch.refused(*command)
        assert said.endswith("has one sub-network trained on its own and is no supernet any more\n")


def test_a_training_of_one_subnetwork_leaves_a_supernet_and_moves_only_what_runs(
    ldsearch: Ldsearch, recovered: Path
) -> None:
    home, at = recovered / "runs/tiny", Subnet.of_encoder([0], [20], 64)
    rows = load_supernet(home)[1].source
    how = TrainSupernet(
        model=str(home),
        teacher=str(home),
        data=str(rows["data"]),
        sandwich="taught",
        label_share=0.0,
        trainer={"max_steps": "2", "learning_rate": "1e-3"},
    )
    place = train_supernet(recovered / "runs/at", how, scored=False, at=at)
    before, after = weights(home), weights(place)
    moved = {name for name in before if not before[name].equal(after[name])}
    assert any(".layer.0." in name for name in moved)
    assert not any(".layer.1." in name for name in moved)
    supernet, record, _ = load_supernet(place)
    # The score that it is trained by is fitted to the model as it starts, and stays.
    assert supernet.score == record.score == "learned"
    untrained = replace(how, trainer={"max_steps": "0"})
    fitted = train_supernet(recovered / "runs/fitted", untrained, scored=False) / "token_score.safetensors"
    start, end = (load_file(path) for path in (fitted, place / fitted.name))
    assert any(weights.any() for weights in start.values())
    assert all(torch.allclose(start[name], end[name], atol=1e-3) for name in start)
    assert record.training["at"] == json.loads(at.to_json())
    Bench.open(place).require_supernet()
    assert f"2 steps of one sub-network, {at.describe()}" in ldsearch("info", "runs/at").out
    assert read(place / "training.json")["identity"]["at"] == at.to_json()
    with pytest.raises(TrainingError, match="a separate teacher"):
        train_supernet(recovered / "runs/alone", replace(how, teacher="in-place", sandwich="paper"), at=at)


@pytest.mark.parametrize("alone", [True, False])
def test_only_one_subnetwork_that_a_teacher_trains_has_no_dropout(
    recovered: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    home, made = recovered / "runs/tiny", []
    config = read(home / "config.json")
    write_json(home / "config.json", {**config, "hidden_dropout_prob": 0.1})

    def spied(*given, **named):
        made.append(make_trainer(*given, **named))
        return made[0]

    make_trainer = training.make_trainer
    monkeypatch.setattr(training, "make_trainer", spied)
    how = TrainSupernet(
        model=str(home),
        teacher=str(home),
        data=str(load_supernet(home)[1].source["data"]),
        sandwich="taught",
        label_share=0.0,
        trainer={"max_steps": "1"},
    )
    at = Subnet.of_encoder([0], [20], 64) if alone else None
    place = train_supernet(recovered / "runs/at", how, scored=False, at=at)
    model = made[0].supernet.model.train()
    inputs = {"input_ids": torch.arange(1, 9)[None], "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    first, second = (model(**inputs).logits for _ in range(2))
    assert first.equal(second) is alone
    assert read(place / "config.json")["hidden_dropout_prob"] == 0.1
