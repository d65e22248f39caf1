"""A search killed at random moments ends with the same reports, row for row."""

import json
import multiprocessing
import random
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import ldsearch
from ldsearch.commands.evolve import evolve
from ldsearch.options import Evolve, TrainSupernet
from ldsearch.runs.folder import claim
from ldsearch.search import run as searches
from ldsearch.training.train_supernet import train_supernet
from tests import fresh
from tests.cli.conftest import CONFIG, reviews, rows, unsettle

KILLS = 5
TABLES = {"trials.csv": 30, "controls.csv": 40, "frontier.csv": 3}  # and at least so many rows of each


def fork(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """A copy of this process, which has imported everything already, that works."""
    child = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    child.start()
    return child


def wait(child: BaseProcess) -> int | None:
    child.join()
    return child.exitcode


def train(place: Path) -> None:
    options = TrainSupernet(
        data=str(place / "reviews.csv"),
        model=str(place / "config.json"),
        max_length=16,
        genes="lengths",  # or one block would be the whole frontier of a model that guesses
        trainer={"max_steps": "1"},
    )
    unsettle(train_supernet(place / "net", options))


def search(runs: Path) -> None:
    searches.draw_frontier = lambda *_, **__: Figure(figsize=(1, 1))  # drawing takes longer than searching
    evolve(ldsearch.Bench.open(runs / "net"), runs / "run", Evolve(evaluations=30, seed=4))


def progress(runs: Path) -> int:
    """Sub-networks whose statistics are stored, on either split."""
    return sum(1 for _ in runs.glob("statistics/*/*.npy"))


def killed(place: Path) -> None:
    """Search once straight through; then again, killed at random moments, until one search ends."""
    (place / "reviews.csv").write_text(reviews(400))
    (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    assert wait(fork(train, place)) == 0
    for name in ("straight", "killed"):
        shutil.copytree(place / "net", place / name / "net")
    assert wait(fork(search, place / "straight")) == 0
    total = progress(place / "straight")

    runs, draw = place / "killed", random.Random(0)
    # How much is stored when the blow falls, and how long after: from before the first measurement, while
    # the search begins, to after the last, while the reports are written.
    parts = KILLS - 2
    later = [1 + int((total - 2) * (part + draw.random()) / parts) for part in range(parts)]
    moments = [(0, draw.uniform(0, 0.4)), *((stored, draw.uniform(0, 0.06)) for stored in later)]
    moments.append((total, draw.uniform(0, 0.2)))
    died = []
    for stored, delay in moments:
        child = fork(search, runs)
        while progress(runs) < stored and child.is_alive():
            time.sleep(0.001)
        time.sleep(delay)
        child.kill()
        died.append((wait(child), progress(runs)))
    assert wait(fork(search, runs)) == 0
    (place / "answer.json").write_text(json.dumps({"died": died, "total": total}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("killed")
    done = fresh.run(killed, place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.slow
def test_the_searches_really_died_on_the_way(place: Path) -> None:
    answer = json.loads((place / "answer.json").read_text())
    codes, stored = zip(*answer["died"], strict=True)
    assert set(codes) <= {-signal.SIGKILL, 0}  # none by an error
    midway = {count for code, count in answer["died"] if code == -signal.SIGKILL and count < answer["total"]}
    assert len(midway) >= KILLS - 2  # each got further
    assert min(midway) < answer["total"] / 4
    assert max(midway) > answer["total"] / 2
    assert list(stored) == sorted(stored)


@pytest.mark.slow
def test_a_search_killed_at_random_moments_ends_with_the_same_rows_and_the_same_choice(place: Path) -> None:
    straight, killed = (place / name / "run" for name in ("straight", "killed"))
    for table, least in TABLES.items():
        told, expected = (
            [{**row, "seconds": ""} for row in rows(folder / table)] for folder in (killed, straight)
        )
        assert len(expected) >= least
        assert told == expected
    assert (killed / "best.json").read_text() == (straight / "best.json").read_text()
    ended, whole = (json.loads((folder / "run.json").read_text()) for folder in (killed, straight))
    assert ended["held_out"] == whole["held_out"]
    assert ended["this_call"]["search"]["measured"] < 30  # it went on


def test_a_search_killed_while_it_claims_its_folder_goes_on(tmp_path: Path) -> None:
    (tmp_path / ".run.json.k1ll3d").write_text('{"ident')
    assert claim(tmp_path, "run.json", {"seed": 0})
