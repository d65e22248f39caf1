"""Whatever is wrong with options, files and values is one line, exit code 2, and nothing written.

Each row of the tables ended in a traceback, a hang or a silent acceptance once.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file

from tests.cli.conftest import TRAIN, Ldsearch
from tests.cli.test_bad_input import NEW, expect_refusal

EVOLVE = ("evolve", "--supernet", "runs/tiny", "--evaluations", "4", "--name", "new")
LENGTHS = "lengths: {reference: 16, mode: ratio, drop_bound: 0.5, levels: 4}"
LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
Damage = Callable[[Path], object]


def write_table(path: Path, cells: dict[str, list[Any]]) -> None:
    """80 rows in a file; each column goes through its values again and again."""
    texts = [f"a film {row} of {'xyzwvut'[row % 7]}" for row in range(80)]
    own = {column: (values * 80)[:80] for column, values in cells.items()}
    table = pd.DataFrame({"text": texts, "label": ["good", "bad"] * 40, **own})
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_json(path, orient="records", lines=True)


def content(name: str, data: bytes | str) -> Damage:
    return lambda place: (place / name).write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize(
    ("name", "cells", "says"),
    [
        ("x.parquet", {"text": [b"a", b"b"]}, "something else"),
        ("x.parquet", {"label": [b"a", b"b"]}, "something else"),
        ("x.parquet", {"label": [[0, 1], [1]]}, "'label' holds lists"),
        ("x.jsonl", {"text": [{"a": 1}]}, "something else"),
        *((f"x.csv.{kind}", "no archive", f"x.csv.{kind}") for kind in ("xz", "zip", "zst", "tar")),
        ("x.json", "[" * 100_000, "x.json"),
    ],
    ids=range(9),
)
def test_cells_that_are_no_text_and_files_that_are_no_tables(
    ldsearch: Ldsearch, place: Path, name: str, cells: dict[str, list[Any]] | str, says: str
) -> None:
    if isinstance(cells, str):
        (place / name).write_text(cells)
    else:
        write_table(place / name, cells)
    assert says in expect_refusal(ldsearch, place, *NEW, "--data", name)


@pytest.mark.parametrize("labels", [["²", "³"], ["--1", "1"], ["9" * 5000, "1"]])
def test_labels_that_are_nearly_numbers_are_names(ldsearch: Ldsearch, place: Path, labels: list[str]) -> None:
    write_table(place / "x.csv", {"label": labels})
    ldsearch.done(*NEW, "--data", "x.csv")
    assert json.loads((place / "runs/new/supernet.json").read_text())["labels"] == sorted(labels)


def test_rows_without_names_of_columns_have_numbers_as_such(ldsearch: Ldsearch, place: Path) -> None:
    (place / "x.json").write_text(json.dumps([[f"film {row}", "ab"[row % 2]] for row in range(80)]))
    ldsearch.done(*NEW, "--data", "x.json", "--text-column", "0", "--label-column", "1")


@pytest.mark.parametrize(
    "fields",
    [
        *({"num_hidden_layers": number} for number in (0, 10**9, "2")),
        *({"hidden_size": number} for number in (0, 1.5, 15)),
        *({"model_type": name} for name in (7, [])),
        *({"num_attention_heads": 0}, {"max_position_embeddings": 10**12}, {"type_vocab_size": 0}),
        *({"hidden_act": "nope"}, {"attn_implementation": "kernels-community/x"}),
        *({"initializer_range": float("nan")}, {"layer_norm_eps": float("nan")}),
        *({"chunk_size_feed_forward": 3}, {"auto_map": {"AutoConfig": "own.Config"}}),
        {"deep": json.loads("[" * 500 + "]" * 500)},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_configurations_of_no_model(ldsearch: Ldsearch, place: Path, fields: dict[str, Any]) -> None:
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | fields))
    assert "config.json" in expect_refusal(ldsearch, place, *NEW)


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def write(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    return write


def poisoned(number: float) -> Damage:
    return weights(lambda tensors: tensors["classifier.weight"][0].fill_(number))


def indexed(index: str) -> Damage:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "x.bin")
        (folder / "model.safetensors.index.json").write_text(index)

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
    shutil.copytree(place / "runs/tiny", place / "m", ignore=shutil.ignore_patterns("supernet.json"))
    damage(place / "m")
    assert says in expect_refusal(ldsearch, place, *NEW, "--model", "m")


def test_a_training_that_diverges_leaves_no_supernet(ldsearch: Ldsearch, place: Path) -> None:
    flags = "--learning_rate 1e6 --weight_decay 1e6 --optim sgd --lr_scheduler_type constant --max_steps 9"
    assert "the training diverged; take a lower --learning_rate" in ldsearch.refused(
        *TRAIN, *flags.split(" "), "--name", "new"
    )
    assert not (place / "runs/new/supernet.json").exists()


def test_two_trainings_of_one_name_do_not_meet(ldsearch: Ldsearch, place: Path) -> None:
    (place / "runs/new").mkdir()
    with FileLock(place / "runs/new/.training.json.lock"):
        outcome = ldsearch(*NEW)
    assert outcome.code == 2
    assert "another process is training in runs/new" in outcome.err
    assert not (place / "runs/new/supernet.json").exists()
    ldsearch.done(*NEW)
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
