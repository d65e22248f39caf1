"""Whatever is wrong with options, files and values is one line, exit code 2, and nothing written.

Each row of the tables ended in a traceback, a hang or a silent acceptance once.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from safetensors.torch import load_file, save_file

from ldsearch.errors import MachineError
from tests.cli.conftest import TRAIN, WILD_SEARCH, Ldsearch
from tests.cli.test_bad_input import expect_refusal, listing

NEW = (*TRAIN, "--max_steps", "2", "--name", "new")
EVOLVE = ("evolve", "--supernet", "runs/tiny", "--evaluations", "4", "--name", "new")
RUN = "runs/tiny-evolve"
LENGTHS = "lengths: {reference: 16, mode: ratio, drop_bound: 0.5, levels: 4}"
LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
Damage = Callable[[Path], object]


def trained_model(place: Path) -> Path:
    """A copy of the supernet as a plain model folder."""
    folder = place / "m"
    shutil.copytree(place / "runs/tiny", folder)
    (folder / "supernet.json").unlink()
    return folder


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--learning_rate inf", "--learning_rate"),
        ("--weight_decay nan", "--weight_decay"),
        ("--weight_decay -1", "--weight_decay"),
        ("--max_grad_norm nan", "--max_grad_norm"),
        ("--warmup_steps nan", "--warmup_steps"),
        ("--seed 4294967296", "--seed"),
        ("--dataloader_num_workers -1", "--dataloader_num_workers"),
        ("--dataloader_persistent_workers", "--dataloader_num_workers"),
        ("--adam_epsilon -1", "--adam_epsilon"),
        ("--adam_beta1 2", "--adam_beta1"),
        ("--label_smoothing_factor 0.1", "own loss"),
        ("--warmup_ratio 0.1", "--warmup_steps takes a share"),
        ("--evaluation_strategy=epoch", "--eval_strategy"),
        ("--overwrite_output_dir", "--name"),
        ("--epochs 3", "did you mean --num_train_epochs?"),
        ("--batch-size 8", "did you mean --per_device_train_batch_size?"),
        ("--drop-bond 0.5", "did you mean --drop-bound?"),
        ("--labels good,good", "distinct names"),
        ("--labels good,ugly", "the model classifies good, ugly"),
        ("--neftune_noise_alpha 5", "--neftune_noise_alpha"),
        ("--remove_unused_columns True", "--remove_unused_columns"),
        ("--torch_compile", "--torch_compile"),
        ("--fsdp full_shard", "--fsdp"),
        ("--lr_scheduler_type warmup_stable_decay", "num_decay_steps"),
        ("--load_best_model_at_end --eval_strategy epoch --metric_for_best_model x", "accuracy, not x"),
        ("--num_train_epochs 3", "--max_steps and --num_train_epochs"),
        ("--average-last 99 --save_total_limit 99", "saves 2 checkpoints"),
        ("--state-weight inf", "--state-weight"),
        ("--memory kept", "--memory"),
        ("--length-mode other", "length mode"),
        ("--stride 5", "--task questions"),
        ("--config x", "hub dataset"),
        ("--assignment seq", "--strategy flexible-depth"),
        ("--encoder-tasks 99", "--strategy flexible-depth"),
        ("--batch-share 1/2", "--strategy flexible-depth"),
        ("--strategy plain --layer-drop 0.1", "layerdrop or lengthdrop"),
        ("--strategy plain --drop-bound 0.1", "lengthdrop or flexible-depth"),
        ("--strategy layerdrop --sandwich shares", "--strategy lengthdrop"),
        ("--genes heads", "--genes is depth, lengths or depth+lengths"),
        ("--genes lengths --layer-drop 0.1", "--layer-drop has no effect with --genes lengths"),
        ("--genes lengths --teacher-drops", "--teacher-drops has no effect with --genes lengths"),
        ("--genes depth --drop-bound 0.1", "--drop-bound has no effect with --genes depth"),
        ("--genes depth --parity", "--parity has no effect with --genes depth"),
        ("--strategy plain --genes depth", "--genes is for --strategy lengthdrop"),
        ("--parity --length-mode other", "length mode"),
        ("--parity --strategy layerdrop", "--parity is for --strategy lengthdrop"),
        ("--parity --strategy flexible-depth", "--parity is for --strategy lengthdrop"),
        ("--text-column text --label-column text", "two of text, pair and label"),
        ("--pair-column text", "no text column"),
        ("--pair-column label", "no label column"),
        ("--name ../escape", "--name"),
        ("--name tiny/inside", "--name"),
        ("--name .", "--name"),
        (f"--name {'x' * 300}", "--name"),
        (f"--data {'x' * 5000}.csv", "too long"),
        (f"--model {'x' * 5000}", "xxx"),
    ],
    ids=lambda value: value[:40],
)
def test_training_options_without_sense_or_effect(
    ldsearch: Ldsearch, place: Path, flags: str, says: str
) -> None:
    assert says in expect_refusal(ldsearch, place, *NEW, *flags.split(" "))


def test_an_empty_name_is_refused_everywhere(ldsearch: Ldsearch, place: Path) -> None:
    assert "--name ''" in expect_refusal(ldsearch, place, *TRAIN, "--name", "")
    assert "--name ''" in expect_refusal(ldsearch, place, "evolve", "--name", "")


def rows(name: str, cells: dict[str, list[Any]]) -> Damage:
    """80 rows in a file; each column goes through its values again and again."""

    def write(place: Path) -> None:
        texts = [f"a film {row} of {'xyzwvut'[row % 7]}" for row in range(80)]
        columns = {"text": texts, "label": ["good", "bad"] * 40}
        for column, values in cells.items():
            columns[column] = (values * 80)[:80]
        table = pd.DataFrame(columns)
        if name.endswith(".parquet"):
            table.to_parquet(place / name)
        elif name.endswith(".csv"):
            table.to_csv(place / name, index=False)
        else:
            lines = [json.dumps(row) for row in table.to_dict("records")]
            (place / name).write_text("\n".join(lines) + "\n")

    return write


def content(name: str, data: bytes | str) -> Damage:
    return lambda place: (place / name).write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize(
    ("data", "write", "says"),
    [
        ("x.parquet", rows("x.parquet", {"text": [b"a", b"b"]}), "something else"),
        ("x.parquet", rows("x.parquet", {"label": [b"a", b"b"]}), "something else"),
        ("x.parquet", rows("x.parquet", {"label": [[0, 1], [1]]}), "'label' holds lists"),
        ("x.jsonl", rows("x.jsonl", {"text": [{"a": 1}]}), "something else"),
        ("x.csv.xz", content("x.csv.xz", b"no archive"), "x.csv.xz"),
        ("x.csv.zip", content("x.csv.zip", b"no archive"), "x.csv.zip"),
        ("x.csv.zst", content("x.csv.zst", b"no archive"), "x.csv.zst"),
        ("x.csv.tar", content("x.csv.tar", b"no archive"), "x.csv.tar"),
        ("x.json", content("x.json", "[" * 100_000), "x.json"),
    ],
)
def test_cells_that_are_no_text_and_files_that_are_no_tables(
    ldsearch: Ldsearch, place: Path, data: str, write: Damage, says: str
) -> None:
    write(place)
    assert says in expect_refusal(ldsearch, place, *NEW, "--data", data)


@pytest.mark.parametrize("labels", [["²", "³"], ["--1", "1"], ["9" * 5000, "1"]])
def test_labels_that_are_nearly_numbers_are_names(ldsearch: Ldsearch, place: Path, labels: list[str]) -> None:
    rows("x.csv", {"label": labels})(place)
    assert ldsearch(*NEW, "--data", "x.csv").code == 0
    assert json.loads((place / "runs/new/supernet.json").read_text())["labels"] == sorted(labels)


def test_rows_without_names_of_columns_have_numbers_as_such(ldsearch: Ldsearch, place: Path) -> None:
    content("x.json", json.dumps([[f"film {row}", "ab"[row % 2]] for row in range(80)]))(place)
    command = (*NEW, "--data", "x.json", "--text-column", "0", "--label-column", "1")
    assert ldsearch(*command).code == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": "2"},
        {"hidden_size": 0},
        {"hidden_size": 1.5},
        {"num_attention_heads": 0},
        {"max_position_embeddings": 10**12},
        {"hidden_act": "nope"},
        {"attn_implementation": "kernels-community/x"},
        {"type_vocab_size": 0},
        {"chunk_size_feed_forward": 3},
        {"initializer_range": float("nan")},
        {"layer_norm_eps": float("nan")},
        {"model_type": 7},
        {"model_type": []},
        {"deep": json.loads("[" * 500 + "]" * 500)},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_configurations_of_no_model(ldsearch: Ldsearch, place: Path, fields: dict[str, Any]) -> None:
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | fields))
    assert "config.json" in expect_refusal(ldsearch, place, *NEW)


def poisoned(number: float) -> Damage:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        weights = load_file(path)
        weights["classifier.weight"][0, 0] = number
        save_file(weights, path, metadata={"format": "pt"})

    return change


def indexed(index: str) -> Damage:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "x.bin")
        (folder / "model.safetensors.index.json").write_text(index)

    return change


def without(name: str) -> Damage:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        weights = load_file(path)
        del weights[name]
        save_file(weights, path, metadata={"format": "pt"})

    return change


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: [path.unlink() for path in folder.glob("tokenizer*")], "tokenizer"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
        (poisoned(np.nan), "NaN or infinite (classifier.weight)"),
        (poisoned(np.inf), "NaN or infinite (classifier.weight)"),
        (indexed('{"weight_map": {"a": "x.bin"}}'), "names x.bin"),
        (indexed('{"weight_map": {"a": "../../etc/passwd"}}'), "names ../../etc/passwd"),
        (indexed('{"weight_map": []}'), "damaged"),
        (indexed("[]"), "damaged"),
    ],
    ids=range(8),
)
def test_model_folders_that_would_train_or_score_by_accident(
    ldsearch: Ldsearch, place: Path, damage: Damage, says: str
) -> None:
    damage(trained_model(place))
    assert says in expect_refusal(ldsearch, place, *NEW, "--model", "m")


def test_a_supernet_without_one_of_its_weights(ldsearch: Ldsearch, place: Path) -> None:
    without("classifier.weight")(place / "runs/tiny")
    assert "classifier.weight is missing" in expect_refusal(ldsearch, place, *EVOLVE)


def test_a_training_that_diverges_leaves_no_supernet(ldsearch: Ldsearch, place: Path) -> None:
    flags = "--learning_rate 1e6 --weight_decay 1e6 --optim sgd --lr_scheduler_type constant --max_steps 9"
    outcome = ldsearch(*TRAIN, *flags.split(" "), "--name", "new")
    assert outcome.code == 2
    assert "the training diverged; take a lower --learning_rate" in outcome.err
    assert not (place / "runs/new/supernet.json").exists()


def test_two_trainings_of_one_name_do_not_meet(ldsearch: Ldsearch, place: Path) -> None:
    (place / "runs/new").mkdir()
    with FileLock(place / "runs/new/.training.json.lock"):
        outcome = ldsearch(*NEW)
    assert outcome.code == 2
    assert "another process is training in runs/new" in outcome.err
    assert not (place / "runs/new/supernet.json").exists()
    assert ldsearch(*NEW).code == 0
    assert not list((place / "runs/new").glob(".*"))


SPACES = {
    "aliases": f"a0: &a0 [x]\n{LAUGHS}\nname: *a9\nsource: x\nblocks: 2\n",
    "itself": "name: &a [*a]\nsource: x\nblocks: 2\ndepth: {keep: [1]}\n",
    "blocks": f"name: s\nsource: x\nblocks: 999999999999\n{LENGTHS}\n",
    "infinite blocks": "name: s\nsource: x\nblocks: .inf\ndepth: {keep: [1]}\n",
    "listed": "name: s\nsource: x\ndepths: {encoder: 999999999999}\nassignment: optimal\n",
    "keep": "name: s\nsource: x\nblocks: 2\ndepth: {keep: [.inf]}\n",
    "digits": f"name: s\nsource: x\nblocks: {'9' * 5000}\ndepth: {{keep: [1]}}\n",
    "levels": f"name: s\nsource: x\nblocks: 2\n{LENGTHS.replace('levels: 4', 'levels: 1000000000')}\n",
    "all levels": "name: s\nsource: x\nblocks: 2\n"
    "lengths: {reference: 999999999999, mode: ratio, drop_bound: 0.5, levels: all}\n",
    "exponent": "name: s\nsource: x\nblocks: 2\n" + LENGTHS.replace("0.5", "'1e-999999999'"),
    "share": "name: s\nsource: x\nblocks: 2\ndepth: {keep: [1, 2]}\noptions: [{ffn_share: 5}]\n",
    "head": "name: s\nsource: x\nblocks: 2\ndepth: {keep: [1, 2]}\noptions: [{heads_off: [99]}]\n",
    "date": "name: 2020-99-99\n",
    "deep": "name: " + "[" * 3000 + "]" * 3000 + "\n",
    "large": f"name: s\nsource: {'x' * 100_000}\nblocks: 2\n",
    "latin-1": b"name: \xe9\n",
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces_are_refused_before_anything_is_built(ldsearch: Ldsearch, place: Path, name: str) -> None:
    content("s.yaml", SPACES[name])(place)
    expect_refusal(ldsearch, place, *EVOLVE, "--space", "s.yaml")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--max-memory inf", "--max-memory"),
        ("--max-memory nan", "--max-memory"),
        ("--max-memory 0.1", "is the least"),
        ("--latency-table nope.csv", "--latency-table"),
        ("--strategy every-other --keep 1e999999999", "--keep"),
        (f"--strategy every-other --keep {'9' * 5000}", "--keep"),
        ("--storage postgresql://user:word@host:port/x", "names no storage"),
        ("--name ../escape", "--name"),
        ("--evaluations 999999999999999999999999", "--evaluations"),
        ("--seed 99999999999999999999999", "--seed"),
    ],
)
def test_search_options_without_sense_or_effect(
    ldsearch: Ldsearch, place: Path, flags: str, says: str
) -> None:
    said = expect_refusal(ldsearch, place, *EVOLVE, *flags.split(" "))
    assert says in said
    assert "word" not in said


@pytest.mark.parametrize(
    "subnet",
    [
        '{"a":' * 3000 + "1" + "}" * 3000,
        '{"version":1,"encoder":' + "[" * 900 + "]" * 900 + "}",
        '{"version":1,"encoder":{"blocks":[0],"lengths":{"tokens":[1],"reference":99999999999999999999}}}',
        '{"version":1,"encoder":{"blocks":[999999999999]}}',
        '{"version":1,"encoder":{"blocks":"01"}}',
        '{"version":true,"encoder":{"blocks":[0]}}',
        '{"version":' + "1" * 5000 + "}",
        "x" * 5000,
    ],
    ids=range(8),
)
def test_texts_that_are_no_sub_network(ldsearch: Ldsearch, place: Path, subnet: str) -> None:
    expect_refusal(ldsearch, place, "evaluate", "runs/tiny", "--subnet", subnet)


def edited(name: str, **changes: Any) -> Damage:
    """Fields of a JSON file changed; ``a__b`` is field b of a."""

    def change(place: Path) -> None:
        path = place / name
        fields = whole = json.loads(path.read_text())
        for key, value in changes.items():
            *outer, last = key.split("__")
            for part in outer:
                fields = fields[part]
            fields[last] = value
        path.write_text(json.dumps(whole))

    return change


def cell(name: str, column: str, value: str) -> Damage:
    """The last cell of a column of a run's table changed."""

    def change(place: Path) -> None:
        path = place / RUN / name
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table.loc[len(table) - 1, column] = value
        table.to_csv(path, index=False)

    return change


def sql(statement: str) -> Damage:
    def change(place: Path) -> None:
        with sqlite3.connect(place / "runs/measurements.db") as connection:
            connection.execute(statement)
        connection.close()

    return change


RECORD = "runs/tiny/supernet.json"
COSTS = '"{\\"macs\\": \\"x\\"}"'
DAMAGES: dict[str, tuple[str, Damage]] = {
    "metrics": ("info runs/tiny", edited(RECORD, metrics=[[]])),
    "source text": ("evaluate RUN", edited(RECORD, source="x")),
    "source list": ("evaluate RUN", edited(RECORD, source=[])),
    "blocks text": ("evolve", edited(RECORD, blocks="")),
    "blocks many": ("info RUN --budget 0.8", edited(RECORD, blocks=10**9, depths={})),
    "blocks other": ("evolve", edited(RECORD, blocks=2, depths={"encoder": 2})),
    "reference list": ("evolve", edited(RECORD, workload__reference=[])),
    "reference null": ("export RUN out", edited(RECORD, reference=None)),
    "training": ("evolve", edited(RECORD, training=1)),
    "split": ("evaluate RUN", edited(RECORD, splits__report={})),
    "train": ("info runs/tiny", edited(RECORD, splits__train=0)),
    "weights": ("report RUN", edited(RECORD, weights=1.5)),
    "surrogate": ("report RUN", edited(RECORD, strategy="\ud800")),
    "bound": ("evolve", edited(RECORD, drop_bound="1/0")),
    "levels": ("evolve", edited(RECORD, space__lengths__levels=[1, 10**9])),
    "identity": ("info RUN", edited(f"{RUN}/run.json", identity=7)),
    "supernet": ("evaluate RUN", edited(f"{RUN}/run.json", supernet=7)),
    "costs": ("report RUN", edited(f"{RUN}/run.json", costs=["nope"])),
    "no costs": ("report RUN", edited(f"{RUN}/run.json", costs=[])),
    "goal": ("report RUN", edited(f"{RUN}/run.json", options={"budget": 7})),
    "best cost": ("info RUN", edited(f"{RUN}/best.json", full_costs={"macs": 0})),
    "best subnet": ("info RUN", edited(f"{RUN}/best.json", subnet=7)),
    "best deep": ("info RUN", content(f"{RUN}/best.json", "[" * 100_000)),
    "best digits": ("info RUN", content(f"{RUN}/best.json", '{"score": ' + "9" * 5000 + "}")),
    "controls formula": ("compare RUN --budget 0.7", cell("controls.csv", "score", "=1+1")),
    "trials number": ("compare RUN --budget 0.7", cell("trials.csv", "score", "0.nan")),
    "frontier empty": ("export RUN out --all", content(f"{RUN}/frontier.csv", b"")),
    "frontier zeros": ("export RUN out --all", content(f"{RUN}/frontier.csv", b"\0" * 500)),
    "frontier macs": ("export RUN out --all", cell("frontier.csv", "macs", "nan")),
    "frontier block": (
        "report RUN",
        cell("frontier.csv", "subnet", '{"version":1,"encoder":{"blocks":[9]}}'),
    ),
    "value": ("info RUN --budget 0.8", sql("UPDATE trial_user_attributes SET value_json = '{'")),
    "attribute": (
        "info RUN --budget 0.8",
        sql(f"UPDATE trial_user_attributes SET value_json = '{COSTS}' WHERE key = 'costs'"),
    ),
    "studies": ("info RUN --budget 0.8", sql("DELETE FROM studies")),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_of_ours(ldsearch: Ldsearch, wild_place: Path, name: str) -> None:
    command, damage = DAMAGES[name]
    damage(wild_place)
    words = list(EVOLVE) if command == "evolve" else command.replace("RUN", RUN).split(" ")
    expect_refusal(ldsearch, wild_place, *words)


def test_statistics_that_are_no_numbers_are_measured_again(ldsearch: Ldsearch, wild_place: Path) -> None:
    before = ldsearch("evaluate", RUN).out
    for path in (wild_place / "runs/statistics").glob("*/*.npy"):
        data = path.read_bytes()
        path.write_bytes(data[:128] + b"\xff" * (len(data) - 128))
    assert ldsearch("evaluate", RUN).out == before
    assert "nan" not in before


def test_statistics_that_a_killed_worker_was_writing_are_removed_by_the_next_call(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    for folder in (wild_place / "runs/statistics").iterdir():
        (folder / ".0123456789abcdef.npy.abcdefgh").write_text("half")
    assert ldsearch("evolve", *WILD_SEARCH).code == 0
    assert not list((wild_place / "runs/statistics").rglob(".*"))


@pytest.mark.parametrize("name", ["r?x=1", "r%41b", "r#a b"])
def test_measurements_lie_where_the_path_says(ldsearch: Ldsearch, wild_place: Path, name: str) -> None:
    (wild_place / "runs").rename(wild_place / name)
    before = set(listing(wild_place))
    assert ldsearch("info", f"{name}/tiny-evolve", "--budget", "0.8").code == 0
    command = ("evolve", "--supernet", f"{name}/tiny", "--runs", name, "--strategy", "every-other")
    assert ldsearch(*command).code == 0
    assert all(path.startswith(name) for path in set(listing(wild_place)) - before)


def test_readers_leave_a_database_that_is_not_ours_as_it_is(ldsearch: Ldsearch, wild_place: Path) -> None:
    path = wild_place / "runs/measurements.db"
    for make in (
        lambda: path.write_bytes(b""),
        lambda: sqlite3.connect(path).execute("CREATE TABLE mine (a)"),
    ):
        path.unlink()
        make()
        before = path.read_bytes()
        says = expect_refusal(ldsearch, wild_place, "info", RUN, "--budget", "0.8")
        assert ("another program's database" if before else "has no measurements") in says
        assert path.read_bytes() == before
    assert "another program's database" in expect_refusal(ldsearch, wild_place, *EVOLVE, "--seed", "7")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("export RUN RUN/out", "lies inside"),
        ("export RUN runs/tiny/out", "lies inside"),
        (f"export RUN {'x' * 300}", "too long"),
        (f"info RUN --budget 0.8 --save {'x' * 300}", "too long"),
        ("compare RUN --strategy every-other --strategy every-other", "--strategy names every-other twice"),
        ("compare RUN --budget 0.4,0.4", "--budget names 0.4 twice"),
        ("profile RUN --batch 999999999999999999999999999999", "--batch"),
        ("profile RUN --threads 999999999999", "--threads"),
        ("report runs/tiny --health --nope 1", "--nope"),
        ("report runs/tiny --health --learning_rate nan", "--learning_rate"),
        ("report runs/tiny --health --max_steps 3", "--steps"),
        ("report RUN --nope 1", "--health"),
        ("report RUN --count 5", "--health"),
        ("report RUN --keep 1", "--importance"),
        ("train-supernet --model RUN --learning_rate nan", "--learning_rate"),
        ("train-supernet --model RUN --max_steps 2 --num_train_epochs 3", "--num_train_epochs"),
        ("train-supernet --model RUN --name ../x", "--name"),
        ("compare RUN --name ../x", "--name"),
        ("profile RUN --name ../x", "--name"),
        ("report RUN --importance --name ../x", "--name"),
    ],
)
def test_other_verbs_check_before_they_write(
    ldsearch: Ldsearch, wild_place: Path, command: str, says: str
) -> None:
    assert says in expect_refusal(ldsearch, wild_place, *command.replace("RUN", RUN).split(" "))


def test_what_the_machine_refuses_is_one_line_and_exit_code_1(
    ldsearch: Ldsearch, wild_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, line in (
        (OSError(28, "", "runs/x"), "error: cannot use runs/x: No space left on device\n"),
        (OSError(30, "", "runs/x"), "error: cannot use runs/x: Read-only file system\n"),
        (MemoryError(), "error: out of memory\n"),
        (MachineError("no connection"), "error: no connection\n"),
    ):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("ldsearch.commands.info.main", fail)
        assert (outcome := ldsearch("info", RUN)).code == 1
        assert outcome.err == line


@pytest.mark.parametrize("folder", ["", "new"])
def test_a_page_for_which_there_is_no_room_leaves_nothing(
    ldsearch: Ldsearch, wild_place: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    before, room, sync = listing(wild_place), iter(range(3)), os.fsync

    def full(handle: int) -> None:
        if next(room, None) is None:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    outcome = ldsearch("report", RUN, "--output", str(Path(folder) / "page.html"))
    assert (outcome.code, outcome.err.splitlines()[-1]) == (
        1,
        f"error: cannot write {Path(folder) / 'page.html'}: No space left on device",
    )
    assert listing(wild_place) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_cannot_be_written(wild_place: Path) -> None:
    import subprocess
    import sys

    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ldsearch", "--json", "info", RUN, "--budget", "0.8"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: cannot use the output: No space left on device\n")
