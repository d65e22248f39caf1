"""The measurement cache: what was stored is found again, whatever happened to the process that stored it."""

import contextlib
import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ldsearch.storage import MeasurementCache
from ldsearch.subnet import Subnet
from ldsearch.trial import Score, Trial

FULL = Subnet.full(3)
SHORT = Subnet.of_encoder(range(3), (9, 5, 1), 16)
PRUNED = Subnet.of_encoder((0, 2))


def trial(subnet: Subnet, score: float = 0.75, **changes: object) -> Trial:
    fields: dict[str, object] = {
        "metric": "accuracy",
        "costs": {"macs": 1234.5, "parameters": 678.0},
        "examples": 40,
        "split": "search",
        "seconds": 0.25,
        "fingerprint": "print",
    }
    return Trial(subnet=subnet, score=Score(score), **{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "measurements.db"


def test_a_stored_trial_comes_back_in_every_field_but_its_seconds(path: Path) -> None:
    stored = trial(SHORT, 0.1 + 0.2, generation=4)
    MeasurementCache(path, "print").put(stored)
    found = MeasurementCache(path, "print").get(SHORT)
    assert found is not None
    assert found.subnet == SHORT
    assert found.score.value == 0.1 + 0.2  # every bit of the double
    assert found.score.higher_is_better is True
    assert dict(found.costs) == {"macs": 1234.5, "parameters": 678.0}
    assert (found.metric, found.examples, found.split) == ("accuracy", 40, "search")
    assert found.fingerprint == "print"
    assert found.seconds == 0.0


def test_the_direction_of_a_score_comes_back(path: Path) -> None:
    MeasurementCache(path, "print").put(trial(SHORT, score=2.0, metric="kl"))
    perplexity = Trial(
        FULL, "kl", Score(3.0, higher_is_better=False), {"macs": 1.0}, 1, "search", 1.0, "print"
    )
    MeasurementCache(path, "print").put(perplexity)
    found = MeasurementCache(path, "print").get(FULL)
    assert found is not None
    assert found.score == Score(3.0, higher_is_better=False)


def test_a_nan_score_comes_back_as_nan(path: Path) -> None:
    MeasurementCache(path, "print").put(trial(SHORT, math.nan))
    found = MeasurementCache(path, "print").get(SHORT)
    assert found is not None
    assert math.isnan(found.score.value)
    assert found.costs["macs"] == 1234.5


def test_what_was_never_stored_is_none(path: Path) -> None:
    cache = MeasurementCache(path, "print")
    cache.put(trial(SHORT))
    assert cache.get(FULL) is None
    assert len(cache) == 1


def test_the_same_lengths_of_another_reference_are_another_measurement(path: Path) -> None:
    cache = MeasurementCache(path, "print")
    cache.put(trial(Subnet.of_encoder(range(3), (9, 5, 1), 16), 0.5))
    cache.put(trial(Subnet.of_encoder(range(3), (9, 5, 1), 32), 0.6))
    again = MeasurementCache(path, "print")
    scores = [again.get(Subnet.of_encoder(range(3), (9, 5, 1), n)) for n in (16, 32)]
    assert [found.score.value for found in scores if found] == [0.5, 0.6]


def test_two_fingerprints_in_one_file_do_not_mix(path: Path) -> None:
    one, other = MeasurementCache(path, "one"), MeasurementCache(path, "other")
    one.put(trial(SHORT, 0.25))
    other.put(trial(SHORT, 0.75))
    other.put(trial(FULL, 0.9))
    one, other = MeasurementCache(path, "one"), MeasurementCache(path, "other")
    assert (len(one), len(other)) == (1, 2)
    assert one.get(FULL) is None
    values = [found.score.value for found in (one.get(SHORT), other.get(SHORT)) if found]
    assert values == [0.25, 0.75]


def test_reopening_finds_everything(path: Path) -> None:
    cache = MeasurementCache(path, "print")
    for index, subnet in enumerate((FULL, SHORT, PRUNED)):
        cache.put(trial(subnet, index / 4))
    again = MeasurementCache(path, "print")
    found = [again.get(subnet) for subnet in (FULL, SHORT, PRUNED)]
    assert [one.score.value for one in found if one] == [0.0, 0.25, 0.5]


def test_looking_leaves_no_file(path: Path) -> None:
    cache = MeasurementCache(path, "print")
    assert cache.get(FULL) is None
    assert len(cache) == 0
    assert not path.parent.exists()


def test_a_measurement_survives_a_process_that_dies_right_after_storing_it(path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from ldsearch.storage import MeasurementCache\n"
        "from tests.storage.test_measurements import SHORT, trial\n"
        "MeasurementCache(Path(sys.argv[1]), 'print').put(trial(SHORT, 0.625))\n"
        "os._exit(9)\n"
    )
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", program, str(path)], cwd=root, capture_output=True)
    assert killed.returncode == 9, killed.stderr.decode()
    found = MeasurementCache(path, "print").get(SHORT)
    assert found is not None
    assert found.score.value == 0.625


def test_a_process_that_dies_in_the_middle_of_storing_leaves_nothing_of_that_measurement(path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from sqlalchemy.orm import Session\n"
        "from ldsearch.storage import MeasurementCache\n"
        "from tests.storage.test_measurements import FULL, SHORT, trial\n"
        "cache = MeasurementCache(Path(sys.argv[1]), 'print')\n"
        "cache.put(trial(FULL))\n"
        "Session.commit = lambda self: os._exit(9)\n"
        "cache.put(trial(SHORT))\n"
    )
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", program, str(path)], cwd=root, capture_output=True)
    assert killed.returncode == 9, killed.stderr.decode()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from trials").fetchone() == (1,)
    cache = MeasurementCache(path, "print")
    assert (len(cache), cache.get(SHORT)) == (1, None)
    cache.put(trial(SHORT, 0.5))
    assert len(MeasurementCache(path, "print")) == 2


def test_what_a_killed_process_wrote_without_committing_is_undone(path: Path) -> None:
    MeasurementCache(path, "print").put(trial(SHORT, 0.5))
    program = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('pragma cache_size = 1')\n"  # so that pages reach the file before the end
        "connection.execute('delete from trial_user_attributes')\n"
        "connection.executemany('insert into studies (study_name) values (?)', [('x' * 500 + str(i),) "
        "for i in range(500)])\n"
        "os._exit(9)\n"
    )
    before = path.stat().st_size
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == 9
    assert path.stat().st_size > before
    assert path.with_name("measurements.db-journal").stat().st_size > 0
    found = MeasurementCache(path, "print").get(SHORT)
    assert found is not None
    assert found.score.value == 0.5
    assert path.stat().st_size == before


def test_trials_of_other_programs_are_no_measurements(path: Path) -> None:
    cache = MeasurementCache(path, "print")
    cache.put(trial(FULL))
    study = optuna.load_study(study_name="print", storage=f"sqlite:///{path}")
    study.ask()  # running, without a result
    attributes = dict(study.trials[0].user_attrs)
    for broken in ({}, {"subnet": "{"}, {"subnet": SHORT.to_json(), "costs": None}, {"subnet": 7}):
        merged = {**attributes, **broken} if broken else {}
        study.add_trial(optuna.trial.create_trial(values=[1.0, 1.0], user_attrs=merged))
    again = MeasurementCache(path, "print")
    assert (len(again), again.get(SHORT)) == (1, None)
    again.put(trial(SHORT, 0.5))
    found = MeasurementCache(path, "print").get(SHORT)
    assert found is not None
    assert found.score.value == 0.5


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_plain_optuna_reads_the_study_and_so_does_its_dashboard(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m"
    ours = f"sqlite:///{path}" if kind == "sqlite" else f"journal:{path}"
    cache = MeasurementCache(ours, "print")
    cache.put(trial(SHORT, 0.625))
    cache.put(trial(PRUNED, math.nan))
    storage = ours if kind == "sqlite" else JournalStorage(JournalFileBackend(str(path)))
    study = optuna.load_study(study_name="print", storage=storage)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["macs", "accuracy"]
    measured, failed = study.get_trials()
    assert measured.values == [1234.5, 0.625]
    assert measured.params == {"length 0": 9, "length 1": 5, "length 2": 1}
    assert measured.state.name == "COMPLETE"
    assert measured.user_attrs["subnet"] == SHORT.to_json()
    assert (measured.user_attrs["metric"], measured.user_attrs["split"]) == ("accuracy", "search")
    assert failed.state.name == "FAIL"
    assert failed.user_attrs["subnet"] == PRUNED.to_json()
    assert [found.number for found in study.best_trials] == [measured.number]


def test_the_study_of_a_score_that_falls_minimises_it(path: Path) -> None:
    """Or the dashboard's frontier would be of the worst."""
    cache = MeasurementCache(path, "print")
    for subnet, perplexity, macs in ((FULL, 3.0, 2.0), (SHORT, 5.0, 1.0), (PRUNED, 6.0, 1.5)):
        score = Score(perplexity, higher_is_better=False)
        cache.put(Trial(subnet, "perplexity", score, {"macs": macs}, 1, "search", 1.0, "print"))
    study = optuna.load_study(study_name="print", storage=f"sqlite:///{path}")
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MINIMIZE"]
    assert sorted(found.number for found in study.best_trials) == [0, 1]
