"""What a user did wrong is one line on stderr and exit code 2, and leaves nothing behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ldsearch.errors import TrainingError
from ldsearch.training.run import training_arguments
from tests.cli.conftest import CONFIG, EPOCHS, TRAIN, Ldsearch, reviews

OTHER_BLOCKS = '{"version":1,"encoder":{"blocks":[0,7]}}'
HALF_A_BLOCK = '{"version":1,"encoder":{"blocks":[0.5]}}'


def listing(folder: Path) -> dict[str, int]:
    """Every path below with its time of change, links and hidden files too."""
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def expect_refusal(ldsearch: Ldsearch, place: Path, *arguments: object) -> str:
    """Run a command that must be refused; returns what it says after ``error: ``."""
    before = listing(place.parent)
    outcome = ldsearch(*arguments)
    assert outcome.code == 2, outcome
    assert re.fullmatch(r"error: .+\n", outcome.err), outcome.err
    assert listing(place.parent) == before
    return outcome.err.removeprefix("error: ")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--data", "missing.csv"], "missing.csv"),
        (["--validation", "other.csv"], "mediocre"),
        (["--label-column", "stars"], "text, label"),
        (["--model", "gpt2.json"], "train it with --strategy lengthdrop --genes depth, layerdrop, plain"),
        (["--model", "albert.json"], "several layers that take turns"),
        (["--model", "broken.json"], "broken.json"),
        (["--model", "wide.json"], "wide.json"),
        (["--model", "own.json"], "auto_map"),
        (["--model", "./missing"], "./missing"),
        (["--model", "empty"], "empty"),
        (["--name", "tiny"], "runs/tiny"),
        (["--name", "other"], "runs/other"),
        (["--runs", "reviews.csv"], "reviews.csv"),
        (["--optim", "adamw_bnb_8bit"], "Trainer"),
        (["--load_best_model_at_end"], "load_best_model_at_end"),
        (["reviews.csv"], "reviews.csv"),
        (["--max-length", "1"], "2..512"),
        (["--max-length", "513"], "2..512"),
        (["--drop-bound", "1"], "drop rate"),
        (["--drop-bound", "nan"], "drop rate"),
        (["--layer-drop", "1.1"], "LayerDrop"),
        (["--plain-share", "-0.1"], "plain share"),
        (["--strategy", "magic"], "lengthdrop"),
        (["--search-rows", "many"], "--search-rows"),
        (["--label-share", "1.5"], "--label-share"),
        (["--label-share", "0.5", "--teacher", "none"], "--label-share"),
        (["--label-share", "0.5", "--strategy", "plain"], "--label-share"),
        (["--state-weight", "-1"], "--state-weight"),
        (["--sandwich", "taught"], "--teacher FOLDER"),
        (["--sandwich", "club"], "taught"),
        (["--token-score", "sideways"], "column, power"),
        (["--teacher", "runs/tiny", "--strategy", "plain"], "--teacher"),
        (["--drop-groups", "head"], "--strategy layerdrop"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_training_that_makes_no_sense(ldsearch: Ldsearch, place: Path, flags: list[str], says: str) -> None:
    (place / "other.csv").write_text("text,label\na fine film,good\na film,mediocre\n")
    (place / "gpt2.json").write_text('{"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2}')
    (place / "albert.json").write_text(json.dumps({**CONFIG, "model_type": "albert", "num_hidden_groups": 2}))
    (place / "broken.json").write_text("[]")
    (place / "wide.json").write_text(json.dumps({**CONFIG, "hidden_size": 15}))
    (place / "own.json").write_text(json.dumps({**CONFIG, "auto_map": {"AutoConfig": "own.Config"}}))
    (place / "empty").mkdir()
    (place / "runs" / "other").mkdir()
    (place / "runs" / "other" / "thesis.tex").write_text("years of work")
    assert says in expect_refusal(ldsearch, place, *TRAIN, *EPOCHS, "--name", "new", *flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"mixed_precison": "yes"}, "--mixed_precison yes"),
        ({"num_train_epochs": "many"}, "'many'"),
        ({"save_strategy": "sometimes"}, "'sometimes'"),
        ({"output_di": "elsewhere"}, "--name"),
        ({"resume_from_checkpoint": "elsewhere"}, "goes on by itself"),
        ({"save_only_model": True}, "--save_only_model"),
        ({"activation_checkpointing_kwargs": '{"every_n_layers": 2}'}, "recomputed"),
        ({"learning_rate": "-1"}, "--learning_rate"),
        ({"num_train_epochs": "0"}, "--num_train_epochs"),
        ({"max_steps": "0"}, "--max_steps"),
        ({"per_device_train_batch_size": "0"}, "--per_device_train_batch_size"),
        ({"gradient_accumulation_steps": "0"}, "--gradient_accumulation_steps"),
    ],
)
def test_flags_that_the_trainer_would_not_understand_or_train_nothing_with(
    tmp_path: Path, flags: dict[str, object], says: str
) -> None:
    with pytest.raises(TrainingError, match=says):
        training_arguments(tmp_path / "new", flags, seed=0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--budget", "12 bananas"], "'12 bananas'"),
        (["--strategy", "constant-ratio", "--budget", "40%"], "'40%'"),
        (["--budget", "0.5", "--at-least", "0.9"], "--at-least"),
        # The default bound of two blocks is 0.74 (0.26 + 0.26² = 0.33, a mean of 16%): of 16 tokens
        # ceil(0.26 · 16) = 5 and ceil(0.26 · 5) = 2 stay.
        (["--budget", "0.05"], "the cheapest (encoder blocks 0, lengths 2 of 16) costs 0."),
        (["--budget", "0.05"], "; --genes lengths --widen searches lengths down to 0.1"),
        (["--budget", "0.05", "--genes", "lengths"], "; --widen searches lengths down to 0.1"),
        (["--budget", "0.05", "--dry-run"], "the cheapest"),
        (["--strategy", "every-other", "--budget", "0.1"], "the cheapest (encoder blocks 0) costs 0.5"),
        (["--strategy", "magic"], "surrogate"),
        (["--space", "unheard-of"], "layerdrop-16to8"),
        (["--space", "demo"], "{'encoder': 6}"),
        (["--space", "config.json"], "config.json"),
        (["--space", "absolute.yaml"], "absolute lengths"),
        (["--strategy", "every-other", "--keep", "99"], "1..2"),
        (["--strategy", "constant-ratio", "--keep", "1"], "--keep"),
        (["--strategy", "every-other", "--space", "demo"], "--space"),
        (["--strategy", "every-other", "--evaluations", "5"], "--evaluations"),
        (["--keep", "1", "--genes", "depth"], "--genes"),
        (["--name", "other"], "runs/other"),
        (["--runs", "elsewhere"], "ldsearch train-supernet"),
        (["--data", "longer.csv"], "train rows"),
        (["--data", "ugly.csv"], "bad, good, ugly"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_search_that_makes_no_sense(ldsearch: Ldsearch, place: Path, flags: list[str], says: str) -> None:
    (place / "runs" / "other").mkdir()
    (place / "runs" / "other" / "thesis.tex").write_text("years of work")
    lengths = "{reference: 16, mode: absolute, drop_bound: 0.5, levels: 4}"
    (place / "absolute.yaml").write_text(f"{{name: s, source: here, blocks: 2, lengths: {lengths}}}")
    (place / "longer.csv").write_text(reviews().replace("\n", "\na film,good\n", 1))
    (place / "ugly.csv").write_text(reviews().replace("\n", "\na film,ugly\n", 1))
    assert says in expect_refusal(ldsearch, place, "evolve", "--name", "new", *flags)


@pytest.mark.parametrize("damage", ["missing", "empty", "record", "no weights", "weights", "shapes"])
def test_a_folder_that_is_no_supernet(ldsearch: Ldsearch, place: Path, damage: str) -> None:
    folder = place / "net"
    if damage == "empty":
        folder.mkdir()
    elif damage != "missing":
        shutil.copytree(place / "runs" / "tiny", folder)
    weights = folder / "model.safetensors"
    if damage == "record":
        (folder / "supernet.json").write_text("{")
    elif damage == "no weights":
        weights.unlink()
    elif damage == "weights":
        weights.write_bytes(weights.read_bytes()[:300])
    elif damage == "shapes":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    assert "net" in expect_refusal(ldsearch, place, "evolve", "--supernet", "net", "--name", "new")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "nowhere"], "nowhere"),
        (["export", "nowhere", "out"], "nowhere"),
        (["info", "nowhere"], "nowhere"),
        (["info", "nowhere", "--budget", "0.5"], "nowhere"),
        (["info", "reviews.csv"], "reviews.csv"),
        (["info", "runs/tiny", "--budget", "0.5"], "nothing was measured on runs/tiny"),
        (["info", "runs/tiny", "--budget", "9ms@batch=1,length=8"], "at which batch and length"),
        (["info", "runs/tiny", "--at-least", "full", "--most-accurate"], "--most-accurate"),
        (["info", "damaged"], "damaged"),
        (["info", "damaged", "--budget", "0.5"], "no finished search"),
        (["info", "damaged", "--save", "reviews.csv"], "reviews.csv"),
        (["evaluate", "damaged"], "damaged"),
        (["evaluate", "runs/tiny"], "--subnet"),
        (["evaluate", "runs/tiny", "--subnet", "{"], "no JSON"),
        (["evaluate", "runs/tiny", "--subnet", "best"], "'best'"),
        (["evaluate", "runs/tiny", "--subnet", OTHER_BLOCKS], "block 7"),
        (["evaluate", "runs/tiny", "--subnet", HALF_A_BLOCK], "0.5"),
        (["evaluate", "runs/tiny", "--subnet", "full", "--split", "test"], "train, search, report"),
        (["evaluate", "runs/tiny", "--subnet", "full", "--metric", "bleu"], "translation"),
        (["export", "runs/tiny", "out", "--subnet", OTHER_BLOCKS], "block 7"),
        (["export", "runs/tiny", "runs", "--subnet", "full"], "not empty"),
        (["export", "runs/tiny", "reviews.csv/out", "--subnet", "full"], "cannot write"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_deliveries_that_make_no_sense(
    ldsearch: Ldsearch, place: Path, arguments: list[str], says: str
) -> None:
    (place / "damaged").mkdir()
    (place / "damaged" / "run.json").write_text('{"identity": {}, "trials": 3}')
    (place / "damaged" / "best.json").write_text("{}")
    assert says in expect_refusal(ldsearch, place, *arguments)


def test_a_damaged_measurement_cache(ldsearch: Ldsearch, place: Path) -> None:
    (place / "runs" / "measurements.db").write_bytes(b"no database" * 500)
    assert "measurements.db" in expect_refusal(ldsearch, place, "evolve", "--name", "new")


def test_the_console_script_says_it_the_same_way(place: Path) -> None:
    script = Path(sys.executable).parent / "ldsearch"
    before = listing(place)
    command = [script, "evolve", "--keep", "bananas"]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert found.returncode == 2
    assert re.fullmatch(r"error: .*--keep 'bananas'.*\n", found.stderr), found.stderr
    assert listing(place) == before


def test_several_gpus_in_one_process_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Trainer would copy the module for each, whose plain attributes stay those of the first."""
    monkeypatch.setattr("transformers.TrainingArguments.n_gpu", 2)
    with pytest.raises(TrainingError, match=r"2 GPUs .* torchrun"):
        training_arguments(tmp_path, {}, seed=0)
