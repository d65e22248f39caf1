"""Health: inherited scores beside those of sub-networks trained on their own."""

import csv
from pathlib import Path

import pytest

from tests.cli.conftest import Ldsearch, read


def health(ldsearch: Ldsearch, *flags: object) -> object:
    return ldsearch("report", "--health", "--count", 3, "--steps", 2, *flags)


def test_fine_tuning_with_a_rate_of_zero_changes_no_score(ldsearch: Ldsearch, place: Path) -> None:
    (place / "elsewhere").mkdir()
    (place / "reviews.csv").rename(place / "elsewhere/reviews.csv")
    outcome = health(ldsearch, "--learning_rate", 0, "--data", "elsewhere/reviews.csv")
    assert outcome.code == 0
    with (place / "runs/tiny-health/health.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 3
    assert all(row["inherited"] == row["fine_tuned"] for row in found)


def test_tau_is_of_the_table_and_finished_sub_networks_are_kept(ldsearch: Ldsearch, place: Path) -> None:
    assert health(ldsearch, "--learning_rate", "1e-2").code == 0
    folder = place / "runs/tiny-health"
    assert {path.name for path in folder.iterdir()} == {
        "health.csv",
        "health.json",
        "health.png",
        "run.json",
        *(f"subnet-{i}.json" for i in range(3)),
    }
    # Planted scores are taken as they are: nothing is trained again.
    for i in range(3):
        row = read(folder / f"subnet-{i}.json")
        text = (folder / f"subnet-{i}.json").read_text()
        text = text.replace(f'"inherited": {row["inherited"]}', f'"inherited": {[1, 3, 2][i]}')
        text = text.replace(f'"fine_tuned": {row["fine_tuned"]}', f'"fine_tuned": {[1, 2, 3][i]}')
        (folder / f"subnet-{i}.json").write_text(text)
    outcome = health(ldsearch, "--learning_rate", "1e-2")
    assert read(folder / "health.json")["tau"] == pytest.approx(1 / 3)  # of three pairs two agree
    assert "Kendall's tau 0.333" in outcome.out
    assert "tau" in ldsearch("info", "runs/tiny-health").out
    refused = ldsearch("evaluate", "runs/tiny-health")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "is a health run" in refused.err


@pytest.mark.parametrize("flags", [("--count", 2), ("--not_a_flag", 1), ("--space", "nowhere.yaml")])
def test_bad_health_options_are_one_line(ldsearch: Ldsearch, place: Path, flags: tuple[object, ...]) -> None:
    outcome = ldsearch("report", "--health", "--steps", 2, *flags)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) <= 2  # the announcement of a sub-network may come first
    assert "Traceback" not in outcome.err
