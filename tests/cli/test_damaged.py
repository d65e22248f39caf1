"""Damaged files of ours are one line and exit code 2; what the machine refuses is one line and exit code 1.

Each row of the table ended in a traceback, a hang or a silent acceptance once.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from ldsearch.errors import MachineError
from tests.cli.conftest import Ldsearch, Outcome
from tests.cli.test_bad_input import RUN, expect_refusal, listing
from tests.cli.test_border import EVOLVE, Damage, content, weights


def edited(name: str, **changes: Any) -> Damage:
    """Fields of a JSON file changed, or removed for ``...``; ``a__b`` is field b of a."""

    def change(place: Path) -> None:
        path = place / name
        fields = whole = json.loads(path.read_text())
        for key, value in changes.items():
            *outer, last = key.split("__")
            for part in outer:
                fields = fields[part]
            fields[last] = value
            if value is ...:
                del fields[last]
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
        with sqlite3.connect(place / DATABASE) as connection:
            connection.execute(statement)
        connection.close()

    return change


DATABASE = "runs/measurements.db"
TINY, RECORD = "runs/tiny", "runs/tiny/supernet.json"
COSTS = '"{\\"macs\\": \\"x\\"}"'
# The command, what is damaged, and what is said.
DAMAGES: dict[str, Any] = {
    "unfinished": ("report RUN", lambda place: (place / RUN / "best.json").unlink(), "unfinished"),
    "no table": ("report RUN", content(f"{RUN}/trials.csv", "score\n1\n"), "strategy"),
    "no controls": ("report RUN", lambda place: (place / RUN / "controls.csv").unlink(), "controls.csv"),
    "no call": ("report RUN", edited(f"{RUN}/run.json", this_call=...), "this_call"),
    "no end": ("info RUN --most-accurate", edited(f"{RUN}/run.json", supernet=...), "is no finished search"),
    "lost": (
        "info RUN --most-accurate",
        lambda place: (place / DATABASE).unlink(),
        f"has no measurements of {RUN}",
    ),
    "gone": ("compare RUN", lambda place: shutil.rmtree(place / TINY), "is no longer at runs/tiny"),
    "no folder": ("evolve", lambda place: shutil.rmtree(place / TINY)),
    "empty folder": ("evolve", lambda place: [path.unlink() for path in (place / TINY).iterdir()]),
    "no record": ("evolve", content(RECORD, "{")),
    "no weights": ("evolve", lambda place: (place / TINY / "model.safetensors").unlink()),
    "cut weights": ("evolve", lambda place: os.truncate(place / TINY / "model.safetensors", 300)),
    "no head": (
        "evolve",
        lambda place: weights(lambda tensors: tensors.pop("classifier.weight"))(place / TINY),
        "classifier.weight is missing",
    ),
    "other shapes": ("evolve", edited("runs/tiny/config.json", intermediate_size=48)),
    "no database": ("evolve", content(DATABASE, b"no database" * 500)),
    "metrics": ("info runs/tiny", edited(RECORD, metrics=[[]])),
    "source text": ("evaluate RUN", edited(RECORD, source="x")),
    "source list": ("evaluate RUN", edited(RECORD, source=[])),
    "blocks text": ("evolve", edited(RECORD, blocks="")),
    "blocks many": ("info RUN --budget 0.8", edited(RECORD, blocks=10**9, depths={})),
    "blocks other": ("evolve", edited(RECORD, blocks=2, depths={"encoder": 2})),
    "reference list": ("evolve", edited(RECORD, workload__reference=[])),
    "reference null": ("export RUN out", edited(RECORD, reference=None)),
    "training": ("evolve", edited(RECORD, training=1)),
    "at": ("evolve", edited(RECORD, training__at={"encoder": 7})),
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
    command, damage, *says = DAMAGES[name]
    damage(wild_place)
    words = list(EVOLVE) if command == "evolve" else command.replace("RUN", RUN).split(" ")
    said = expect_refusal(ldsearch, wild_place, *words)
    assert all(words in said for words in says)


def test_statistics_that_are_no_numbers_are_measured_again(ldsearch: Ldsearch, wild_place: Path) -> None:
    before = ldsearch("evaluate", RUN).out
    for path in (wild_place / "runs/statistics").glob("*/*.npy"):
        data = path.read_bytes()
        path.write_bytes(data[:128] + b"\xff" * (len(data) - 128))
    assert ldsearch("evaluate", RUN).out == before
    assert "nan" not in before


@pytest.mark.parametrize("name", ["r?x=1", "r%41b", "r#a b"])
def test_measurements_lie_where_the_path_says(ldsearch: Ldsearch, wild_place: Path, name: str) -> None:
    (wild_place / "runs").rename(wild_place / name)
    before = set(listing(wild_place))
    ldsearch.done("info", f"{name}/tiny-evolve", "--budget", "0.8")
    ldsearch.done("evolve", "--supernet", f"{name}/tiny", "--runs", name, "--strategy", "every-other")
    assert all(path.startswith(name) for path in set(listing(wild_place)) - before)


def test_readers_leave_a_database_that_is_not_ours_as_it_is(ldsearch: Ldsearch, wild_place: Path) -> None:
    path = wild_place / DATABASE
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


@pytest.mark.usefixtures("wild_place")
def test_what_the_machine_refuses_is_one_line_and_exit_code_1(ldsearch: Ldsearch) -> None:
    for error, line in (
        (OSError(28, "", "runs/x"), "cannot use runs/x: No space left on device"),
        (OSError(30, "", "runs/x"), "cannot use runs/x: Read-only file system"),
        (MemoryError(), "out of memory"),
        (MachineError("no connection"), "no connection"),
    ):
        with mock.patch("ldsearch.commands.info.main", side_effect=error):
            assert ldsearch("info", RUN) == Outcome(1, "", f"error: {line}\n")


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
    page = Path(folder) / "page.html"
    outcome = ldsearch("report", RUN, "--output", page)
    line = f"error: cannot write {page}: No space left on device"
    assert (outcome.code, outcome.err.splitlines()[-1]) == (1, line)
    assert listing(wild_place) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_cannot_be_written(wild_place: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ldsearch", "--json", "info", RUN, "--budget", "0.8"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: cannot use the output: No space left on device\n")
