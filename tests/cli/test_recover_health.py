"""Health: inherited scores beside those of sub-networks trained on their own."""

import csv
from pathlib import Path

import pytest
from scipy.stats import kendalltau

from tests.cli.conftest import Ldsearch, read


def health(ldsearch: Ldsearch, *flags: object) -> object:
    return ldsearch("report", "--health", "--count", 5, "--steps", 2, *flags)


def test_fine_tuning_with_a_rate_of_zero_changes_no_score(ldsearch: Ldsearch, place: Path) -> None:
    outcome = health(ldsearch, "--learning_rate", 0)
    assert outcome.code == 0
    with (place / "runs/tiny-health/health.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 5
    assert all(row["inherited"] == row["fine_tuned"] for row in found)


def test_tau_is_scipys_of_the_table_and_finished_sub_networks_are_kept(
    ldsearch: Ldsearch, place: Path
) -> None:
    assert health(ldsearch, "--learning_rate", "1e-2").code == 0
    folder = place / "runs/tiny-health"
    assert {path.name for path in folder.iterdir()} == {
        "health.csv",
        "health.json",
        "health.png",
        "run.json",
        *(f"subnet-{i}.json" for i in range(5)),
    }
    # Planted scores are taken as they are: nothing is trained again.
    for i in range(5):
        row = read(folder / f"subnet-{i}.json")
        text = (folder / f"subnet-{i}.json").read_text()
        text = text.replace(f'"inherited": {row["inherited"]}', f'"inherited": {[1, 3, 2, 4, 5][i]}')
        text = text.replace(f'"fine_tuned": {row["fine_tuned"]}', f'"fine_tuned": {[1, 2, 3, 4, 5][i]}')
        (folder / f"subnet-{i}.json").write_text(text)
    outcome = health(ldsearch, "--learning_rate", "1e-2")
    assert read(folder / "health.json")["tau"] == pytest.approx(
        kendalltau([1, 3, 2, 4, 5], range(5)).statistic
    )
    assert read(folder / "health.json")["tau"] == pytest.approx(0.8)
    assert "Kendall's tau 0.800" in outcome.out


@pytest.mark.parametrize("flags", [("--count", 2), ("--not_a_flag", 1), ("--space", "nowhere.yaml")])
def test_bad_health_options_are_one_line(ldsearch: Ldsearch, place: Path, flags: tuple[object, ...]) -> None:
    outcome = ldsearch("report", "--health", "--steps", 2, *flags)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) <= 2  # the announcement of a sub-network may come first
    assert "Traceback" not in outcome.err


def test_health_reads_moved_data_once_and_is_described(ldsearch: Ldsearch, place: Path) -> None:
    (place / "elsewhere").mkdir()
    (place / "reviews.csv").rename(place / "elsewhere/reviews.csv")
    assert health(ldsearch, "--data", "elsewhere/reviews.csv").code == 0
    assert "tau" in ldsearch("info", "runs/tiny-health").out
    outcome = ldsearch("evaluate", "runs/tiny-health")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "is a health run" in outcome.err
