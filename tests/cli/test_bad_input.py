"""What a user did wrong is one line on stderr and exit code 2, and leaves nothing behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch, reviews

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


def train(*arguments: object) -> tuple[object, ...]:
    return (*TRAIN, *EPOCHS, "--name", "new", *arguments)


@pytest.mark.parametrize(
    ("content", "says"), [(None, "no data file"), ("", "cannot read"), ("text,label\n", "no rows")]
)
@pytest.mark.parametrize("option", ["--data", "--validation"])
def test_missing_and_empty_data(
    ldsearch: Ldsearch, place: Path, option: str, content: str | None, says: str
) -> None:
    if content is not None:
        (place / "bad.csv").write_text(content)
    message = expect_refusal(ldsearch, place, *train(option, "bad.csv"))
    assert says in message
    assert "bad.csv" in message


def test_a_folder_without_data(ldsearch: Ldsearch, place: Path) -> None:
    (place / "folder").mkdir()
    assert "cannot load the dataset" in expect_refusal(ldsearch, place, *train("--data", "folder"))


@pytest.mark.parametrize("option", ["--text-column", "--label-column", "--pair-column"])
def test_an_unknown_column_is_named_beside_those_there_are(
    ldsearch: Ldsearch, place: Path, option: str
) -> None:
    message = expect_refusal(ldsearch, place, *train(option, "stars"))
    assert "'stars'" in message
    assert "text, label" in message


def test_a_validation_label_that_training_never_saw_is_named(ldsearch: Ldsearch, place: Path) -> None:
    (place / "validation.csv").write_text("text,label\na fine film,good\na film,mediocre\n")
    message = expect_refusal(ldsearch, place, *train("--validation", "validation.csv"))
    assert "training never saw: mediocre" in message


def test_lengths_of_an_unregistered_family_are_refused_with_the_registered_ones(
    ldsearch: Ldsearch, place: Path
) -> None:
    fields = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2}
    (place / "gpt2.json").write_text(json.dumps(fields))
    message = expect_refusal(ldsearch, place, *train("--model", "gpt2.json"))
    assert "works depth-only, through its own stock forward" in message
    assert "bert, roberta" in message
    assert "--strategy layerdrop" in message


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{}",
        "[]",
        '{"model_type": "unheard-of"}',
        '{"model_type": "bert", "hidden_size": "wide"}',
        '{"model_type": "bert", "hidden_size": 15, "num_attention_heads": 2}',
    ],
)
def test_a_configuration_that_describes_no_model(ldsearch: Ldsearch, place: Path, config: str) -> None:
    (place / "broken.json").write_text(config)
    assert "broken.json" in expect_refusal(ldsearch, place, *train("--model", "broken.json"))


@pytest.mark.parametrize("model", ["./missing", "missing.json", "empty"])
def test_a_missing_model_is_named(ldsearch: Ldsearch, place: Path, model: str) -> None:
    (place / "empty").mkdir()
    assert model in expect_refusal(ldsearch, place, *train("--model", model))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--mixed_precison", "yes"], "knows --mixed_precison yes"),
        (["reviews.csv"], "knows reviews.csv"),
        (["--num_train_epochs", "many"], "'many'"),
        (["--save_strategy", "sometimes"], "'sometimes'"),
        (["--load_best_model_at_end"], "load_best_model_at_end"),
        (["--output_dir", "elsewhere"], "--name"),
        (["--output_di=elsewhere"], "--name"),
        (["--resume_from_checkpoint", "elsewhere"], "goes on by itself"),
        (["--activation_checkpointing_kwargs", '{"every_n_layers": 2}'], "every block is recomputed"),
        (["--optim", "adamw_bnb_8bit"], "the Trainer refuses"),
        (["--learning_rate", "-1"], "--learning_rate"),
        (["--num_train_epochs", "0"], "--num_train_epochs"),
        (["--max_steps", "0"], "--max_steps"),
        (["--per_device_train_batch_size", "0"], "--per_device_train_batch_size"),
        (["--max-length", "0"], "2..512"),
        (["--max-length", "1"], "2..512"),
        (["--max-length", "513"], "2..512"),
        (["--drop-bound", "1"], "drop rate"),
        (["--search-rows", "many"], "--search-rows takes auto, train, half or a number above 0"),
        (["--label-share", "1.5"], "--label-share must lie in 0..1"),
        (["--label-share", "0.5", "--teacher", "none"], "with a teacher"),
        (["--label-share", "0.5", "--strategy", "plain"], "--strategy lengthdrop"),
        (["--state-weight", "-1"], "--state-weight must not be negative"),
        (["--sandwich", "taught"], "--sandwich taught needs --teacher FOLDER"),
        (["--sandwich", "club"], "use paper, shares, taught"),
        (["--drop-bound", "nan"], "drop rate"),
        (["--layer-drop", "1.1"], "LayerDrop"),
        (["--plain-share", "-0.1"], "plain share"),
        (["--strategy", "magic"], "plain, layerdrop, lengthdrop"),
    ],
)
def test_training_options_that_make_no_sense(
    ldsearch: Ldsearch, place: Path, flags: list[str], says: str
) -> None:
    assert says in expect_refusal(ldsearch, place, *train(*flags))


@pytest.mark.parametrize("budget", ["0", "-1", "1.5", "nan", "inf", "12 bananas", "", "40%", "5ms"])
@pytest.mark.parametrize("command", [("evolve",), ("evolve", "--strategy", "constant-ratio")])
def test_a_senseless_budget_is_repeated(
    ldsearch: Ldsearch, place: Path, command: tuple[str, ...], budget: str
) -> None:
    message = expect_refusal(ldsearch, place, *command, "--budget", budget, "--name", "new")
    assert repr(budget) in message
    assert "2.1GMACs" in message  # what a budget looks like


@pytest.mark.parametrize(
    "command",
    [("evolve",), ("evolve", "--strategy", "constant-ratio"), ("info", "runs/tiny")],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--budget", "0.5", "--at-least", "0.9"], "--budget and --at-least ask for different"),
        (["--at-least", "full", "--most-accurate"], "--at-least and --most-accurate ask for different"),
        (["--at-least", "good"], "cannot read --at-least 'good'"),
    ],
)
def test_two_selectors_at_once_and_senseless_scores(
    ldsearch: Ldsearch, place: Path, command: tuple[str, ...], flags: list[str], says: str
) -> None:
    assert says in expect_refusal(ldsearch, place, *command, *flags)


def test_a_budget_below_the_cheapest_sub_network_names_it(ldsearch: Ldsearch, place: Path) -> None:
    # The default bound of two blocks is 0.74 (0.26 + 0.26² = 0.33, a mean of 16%): of 16 tokens
    # ceil(0.26 · 16) = 5 and ceil(0.26 · 5) = 2 stay.
    message = expect_refusal(ldsearch, place, "evolve", "--budget", "0.05", "--name", "new")
    assert "the cheapest (encoder blocks 0-1, lengths 5 2 of 16) costs 0." in message


def test_every_other_cannot_go_below_one_block(ldsearch: Ldsearch, place: Path) -> None:
    message = expect_refusal(ldsearch, place, "evolve", "--strategy", "every-other", "--budget", "0.1")
    assert "the cheapest (encoder blocks 0) costs 0.5" in message


@pytest.mark.parametrize("damage", ["missing", "empty", "record", "no weights", "weights", "shapes"])
@pytest.mark.parametrize("command", [("evolve",), ("evolve", "--strategy", "every-other")])
def test_a_folder_that_is_no_supernet(
    ldsearch: Ldsearch, place: Path, command: tuple[str, ...], damage: str
) -> None:
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
    assert "net" in expect_refusal(ldsearch, place, *command, "--supernet", "net", "--name", "new")


def test_no_supernet_at_all_says_how_to_get_one(ldsearch: Ldsearch, place: Path) -> None:
    message = expect_refusal(ldsearch, place, "evolve", "--runs", "elsewhere")
    assert "ldsearch train-supernet" in message


@pytest.mark.parametrize(
    "command",
    [train("--name", "other"), ("evolve", "--name", "other"), train("--name", "tiny"), train("--runs", "x")],
    ids=["train", "evolve", "finished", "file"],
)
def test_an_output_folder_that_holds_something_else(
    ldsearch: Ldsearch, place: Path, command: tuple[str, ...]
) -> None:
    (place / "runs" / "other").mkdir()
    (place / "runs" / "other" / "thesis.tex").write_text("years of work")
    (place / "x").write_text("a file where the runs should lie")
    assert re.search("another run|already holds|cannot write", expect_refusal(ldsearch, place, *command))


def test_a_search_with_another_seed_does_not_enter_a_finished_search(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch("evolve", "--evaluations", 2, "--name", "search").code == 0
    message = expect_refusal(ldsearch, place, "evolve", "--name", "search", "--seed", 1)
    assert "seed differ" in message


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["evolve", "--space", "unheard-of"], "layerdrop-16to8"),
        (["evolve", "--space", "demo"], "is for {'encoder': 6} blocks"),
        (["evolve", "--space", "layerdrop-16to8"], "is for {'encoder': 16} blocks"),
        (["evolve", "--space", "config.json"], "does not describe a search space"),
        (["evolve", "--strategy", "every-other", "--keep", "99"], "keep [99] must name depths in 1..2"),
        (["evolve", "--strategy", "constant-ratio", "--keep", "1"], "takes no --keep"),
        (["evolve", "--strategy", "every-other", "--space", "demo"], "takes no --space"),
        (["evolve", "--strategy", "every-other", "--evaluations", "5"], "--evaluations is for searches"),
        (["evolve", "--keep", "1", "--genes", "depth"], "--genes is for searches"),
        (["evolve", "--strategy", "magic"], "use one of surrogate, "),
    ],
)
def test_searches_that_make_no_sense(ldsearch: Ldsearch, place: Path, flags: list[str], says: str) -> None:
    assert says in expect_refusal(ldsearch, place, *flags, "--name", "new")


@pytest.mark.parametrize(
    ("row", "says"), [("a film,good", "train rows"), ("a film,ugly", "bad, good, ugly")], ids=["row", "label"]
)
def test_data_that_changed_since_training(ldsearch: Ldsearch, place: Path, row: str, says: str) -> None:
    (place / "moved.csv").write_text(reviews().replace("\n", f"\n{row}\n", 1))
    assert says in expect_refusal(ldsearch, place, "evolve", "--data", "moved.csv")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["evaluate", "nowhere"], "neither a supernet nor a search run"),
        (["info", "nowhere"], "neither a supernet nor a search run"),
        (["export", "nowhere", "out"], "neither a supernet nor a search run"),
        (["info", "reviews.csv"], "neither a supernet nor a search run"),
        (["info", "damaged"], "damaged"),
        (["info", "nowhere", "--budget", "0.5"], "neither a supernet nor a search run"),
        (["info", "runs/tiny", "--budget", "0.5"], "nothing was measured on runs/tiny yet"),
        (["info", "damaged", "--budget", "0.5"], "no finished search"),
        (["info", "damaged", "--save", "reviews.csv"], "reviews.csv exists already"),
        (["evaluate", "damaged"], "damaged"),
        (["evaluate", "runs/tiny"], "--subnet"),
        (["export", "runs/tiny", "out"], "--subnet"),
        (["evaluate", "runs/tiny", "--subnet", "{"], "no JSON"),
        (["evaluate", "runs/tiny", "--subnet", "best"], "'best'"),
        (["evaluate", "runs/tiny", "--subnet", OTHER_BLOCKS], "block 7"),
        (["evaluate", "runs/tiny", "--subnet", HALF_A_BLOCK], "0.5"),
        (["evaluate", "runs/tiny", "--subnet", "full", "--split", "test"], "train, search, report"),
        (["export", "runs/tiny", "out", "--subnet", OTHER_BLOCKS], "block 7"),
        (["export", "runs/tiny", "runs", "--subnet", "full"], "not empty"),
        (["export", "runs/tiny", "reviews.csv/out", "--subnet", "full"], "cannot write"),
    ],
)
def test_deliveries_that_make_no_sense(ldsearch: Ldsearch, place: Path, flags: list[str], says: str) -> None:
    (place / "damaged").mkdir()
    (place / "damaged" / "run.json").write_text('{"identity": {}, "trials": 3}')
    (place / "damaged" / "best.json").write_text("{}")
    assert says in expect_refusal(ldsearch, place, *flags)


def test_a_damaged_measurement_cache(ldsearch: Ldsearch, place: Path) -> None:
    (place / "runs" / "measurements.db").write_bytes(b"no database" * 500)
    assert "measurements.db" in expect_refusal(ldsearch, place, "evolve", "--name", "new")


def test_the_console_script_says_it_the_same_way(place: Path) -> None:
    script = Path(sys.executable).parent / "ldsearch"
    before = listing(place)
    command = [script, "evolve", "--budget", "12 bananas"]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert found.returncode == 2
    assert re.fullmatch(r"error: .*'12 bananas'.*\n", found.stderr), found.stderr
    assert listing(place) == before
