"""The reference code's choices, end to end."""

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import EPOCHS, TRAIN, Ldsearch


def test_parity_trains_and_searches_as_the_reference_does(ldsearch: Ldsearch, place: Path) -> None:
    assert ldsearch(*TRAIN, *EPOCHS, "--parity", "--name", "reference").code == 0
    record = json.loads((place / "runs/reference/supernet.json").read_text())
    assert (record["drop_bound"], record["length_mode"]) == ("1/5", "absolute")
    assert (record["score"], record["parity"]) == ("column-with-pads", True)
    plan = ldsearch("evolve", "--supernet", "runs/reference", "--parity", "--dry-run")
    # Two lengths of 2 to 16, never rising: (2..16) over (2..first).
    assert f"up to {sum(first - 1 for first in range(2, 17))} sub-networks" in plan.out
    outcome = ldsearch("evolve", "--supernet", "runs/reference", "--parity", "--name", "search")
    assert outcome.code == 0, outcome.err
    with (place / "runs/search/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["length_mode"] for row in rows} == {"absolute", ""}
    assert len(rows) == sum(first - 10 for first in range(13, 17))  # (16, 16) is the full model itself
    full = next(row for row in rows if not row["lengths"])
    assert float(full["score"]) == pytest.approx(record["metrics"]["search_accuracy"])
