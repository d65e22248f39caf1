"""A search killed at random moments ends with the same reports, row for row."""

import csv
import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import ldsearch
from ldsearch.commands.evolve import evolve
from ldsearch.options import Evolve, TrainSupernet
from ldsearch.training.train_supernet import train_supernet
from tests import fresh
from tests.cli.conftest import CONFIG, reviews, unsettle

pytestmark = pytest.mark.slow

KILLS = 7
TABLES = ("trials.csv", "controls.csv", "frontier.csv")


def fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a copy of this process, which has imported everything already; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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
    evolve(ldsearch.Bench.open(runs / "net"), runs / "run", Evolve(evaluations=30, seed=4))


def runs_on(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def progress(runs: Path) -> int:
    """Sub-networks whose statistics are stored, on either split."""
    return sum(1 for _ in runs.glob("statistics/*/*.npy"))


def killed(place: Path) -> None:
    """Search once straight through; then again, killed at random moments, until one search ends."""
    (place / "reviews.csv").write_text(reviews(400))
    (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    assert wait(fork(lambda: train(place))) == 0
    for name in ("straight", "killed"):
        shutil.copytree(place / "net", place / name / "net")
    assert wait(fork(lambda: search(place / "straight"))) == 0
    total = progress(place / "straight")

    runs, draw = place / "killed", random.Random(0)
    # How much is stored when the blow falls, and how long after: from before the first measurement, while
    # the search begins, to after the last, while the reports are written.
    moments = [(0, draw.uniform(0, 0.1)), (0, draw.uniform(0.1, 0.4)), (total, draw.uniform(0, 0.2))]
    parts = KILLS - len(moments)
    later = [1 + int((total - 2) * (part + draw.random()) / parts) for part in range(parts)]
    moments[2:2] = [(stored, draw.uniform(0, 0.06)) for stored in later]
    died = []
    for stored, delay in moments:
        child = fork(lambda: search(runs))
        while progress(runs) < stored and runs_on(child):
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        died.append((wait(child), progress(runs)))
    assert wait(fork(lambda: search(runs))) == 0
    (place / "answer.json").write_text(json.dumps({"died": died, "total": total}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("killed")
    done = fresh.run(killed, place)
    assert done.returncode == 0, done.stderr
    return place


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_the_searches_really_died_on_the_way(place: Path) -> None:
    answer = json.loads((place / "answer.json").read_text())
    codes, stored = zip(*answer["died"], strict=True)
    assert len(codes) == KILLS
    assert set(codes) <= {-signal.SIGKILL, 0}  # none by an error
    midway = [count for code, count in answer["died"] if code == -signal.SIGKILL and count < answer["total"]]
    assert len(midway) >= KILLS - 3
    assert len(set(midway)) >= 3  # each got further
    assert min(midway) < answer["total"] / 4
    assert max(midway) > answer["total"] / 2
    assert list(stored) == sorted(stored)


@pytest.mark.parametrize("table", TABLES)
def test_a_search_killed_at_random_moments_ends_with_the_same_rows(place: Path, table: str) -> None:
    straight = rows(place / "straight/run" / table)
    assert len(straight) >= {"trials.csv": 30, "controls.csv": 40, "frontier.csv": 3}[table]
    assert rows(place / "killed/run" / table) == straight


def test_it_ends_with_the_same_choice_and_leaves_no_half_file_in_its_folder(place: Path) -> None:
    straight, killed = ((place / name / "run/best.json").read_text() for name in ("straight", "killed"))
    assert killed == straight
    run = json.loads((place / "killed/run/run.json").read_text())
    assert run["held_out"] == json.loads((place / "straight/run/run.json").read_text())["held_out"]
    assert run["this_call"]["search"]["measured"] < 30  # it went on


def test_a_search_killed_while_it_claims_its_folder_goes_on(place: Path) -> None:
    folder = place / "straight/claimed"
    folder.mkdir()
    (folder / ".run.json.k1ll3d").write_text('{"ident')
    bench = ldsearch.Bench.open(place / "straight/net")
    assert len(evolve(bench, folder, Evolve(evaluations=5)).result.trials) == 5
