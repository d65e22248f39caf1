"""The measurement cache: what was stored is found again, whatever happened to the process that stored it."""

import contextlib
import math
import sqlite3
import subprocess
import sys
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ldsearch.storage import MeasurementCache, backends
from ldsearch.storage.backends import backend_of
from ldsearch.subnet import Subnet
from ldsearch.trials.trial import Score, Trial
from tests import fresh

ROOT = Path(__file__).parents[2]
KINDS = ("sqlite:///{}/m.db", "journal:{}/m.log")
FULL = Subnet.full(3)
SHORT = Subnet.of_encoder(range(3), (9, 5, 1), 16)
PRUNED = Subnet.of_encoder((0, 2))


def trial(subnet: Subnet, score: float = 0.75, generation: int = 0) -> Trial:
    costs = {"macs": 1234.5, "parameters": 678.0}
    return Trial(subnet, "accuracy", Score(score), costs, 40, "search", 0.25, "print", generation)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "measurements.db"


def found(cache: MeasurementCache, subnet: Subnet) -> Trial:
    trial = cache.get(subnet)
    assert trial is not None
    return trial


def test_a_process_that_dies_in_the_middle_of_storing_leaves_nothing_of_that_measurement(path: Path) -> None:
    killed = fresh.program(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from sqlalchemy.orm import Session\n"
        "from ldsearch.storage import MeasurementCache\n"
        "from tests.storage.test_measurements import FULL, SHORT, trial\n"
        "cache = MeasurementCache(Path(sys.argv[1]), 'print')\n"
        "cache.put(trial(FULL))\n"
        "Session.commit = lambda self: os._exit(9)\n"
        "cache.put(trial(SHORT))\n",
        path,
    )
    assert killed.returncode == 9, killed.stderr
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
    assert found(MeasurementCache(path, "print"), SHORT).score.value == 0.5
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
    assert found(MeasurementCache(path, "print"), SHORT).score.value == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_is_read_as_optuna_itself_reads_it_page_by_page(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_PAGE", 3)
    backend = backend_of(kind.format(tmp_path))
    storage = backend.open()
    assert list(backends.attributes_since(storage, "s", 0)) == []
    studies = [optuna.create_study(study_name=name, storage=storage) for name in ("s", "other")]
    for number in range(8):
        for study in studies:  # the ids of one study's trials have gaps
            attributes = {} if number == 4 else {"a": [number, study.study_name], "b": None}
            study.add_trial(optuna.trial.create_trial(values=[1.0], user_attrs=attributes))
    truth = [trial.user_attrs for trial in studies[0].get_trials()]
    # It builds a FrozenTrial each, which takes nine tenths of the time and of the memory.
    monkeypatch.setattr(optuna.storages.RDBStorage, "get_all_trials", None)
    for number in range(9):
        assert list(backends.attributes_since(backend.open(), "s", number)) == truth[number:]


@pytest.mark.parametrize("kind", KINDS)
def test_plain_optuna_reads_the_study_and_so_does_its_dashboard(tmp_path: Path, kind: str) -> None:
    ours = kind.format(tmp_path)
    cache = MeasurementCache(ours, "print")
    cache.put(trial(SHORT, 0.625))
    cache.put(trial(PRUNED, math.nan))
    plain = JournalStorage(JournalFileBackend(f"{tmp_path}/m.log")) if "journal" in kind else ours
    study = optuna.load_study(study_name="print", storage=plain)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["macs", "accuracy"]
    measured, failed = study.get_trials()
    assert measured.values == [1234.5, 0.625]
    assert measured.params == {"length 0": 9, "length 1": 5, "length 2": 1}
    assert measured.state.name == "COMPLETE"
    told = {"subnet": SHORT.to_json(), "metric": "accuracy", "split": "search"}
    assert {**measured.user_attrs, **told} == measured.user_attrs
    assert (failed.state.name, failed.user_attrs["subnet"]) == ("FAIL", PRUNED.to_json())
    assert study.best_trials == [measured]


def test_the_study_of_a_score_that_falls_minimises_it(path: Path) -> None:
    """Or the dashboard's frontier would be of the worst."""
    cache = MeasurementCache(path, "print")
    for subnet, perplexity, macs in ((FULL, 3.0, 2.0), (SHORT, 5.0, 1.0), (PRUNED, 6.0, 1.5)):
        score = Score(perplexity, higher_is_better=False)
        cache.put(Trial(subnet, "perplexity", score, {"macs": macs}, 1, "search", 1.0, "print"))
    study = optuna.load_study(study_name="print", storage=f"sqlite:///{path}")
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MINIMIZE"]
    assert sorted(best.number for best in study.best_trials) == [0, 1]
    assert found(MeasurementCache(path, "print"), FULL).score == Score(3.0, higher_is_better=False)


PROGRAM = """
import sys
from ldsearch.storage import MeasurementCache
from tests.storage.test_measurements import trial
from ldsearch.subnet import Subnet
from ldsearch.storage.claims import name_of
cache = MeasurementCache(sys.argv[1], "print")
print("ready", flush=True)
sys.stdin.readline()
for reference in range(16, 28):
    subnet = Subnet.of_encoder(range(3), (9, 5, 1), reference)
    name = name_of(subnet.to_json())
    held, again = cache.claims.take([name])
    assert not again
    if held:
        cache.put(trial(subnet))
        print(name, flush=True)
print("done", flush=True)
sys.stdin.readline()  # a process that is gone holds nothing: the others would measure its part again
"""


def until_done(child: "subprocess.Popen[str]") -> list[str]:
    """The names that a child prints, until it is done or has failed."""
    lines = (line.strip() for line in iter(child.stdout.readline, ""))
    return list(takewhile(lambda line: line != "done", lines))


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_want_the_same_at_once_have_one_winner_each(kind: str, tmp_path: Path) -> None:
    """They also make the tables of a new file at once."""
    command = [sys.executable, "-c", PROGRAM, kind.format(tmp_path)]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 3
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [until_done(child) for child in children]
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(set(chain(*told))) == sum(map(len, told)) == 12
    cache = MeasurementCache(kind.format(tmp_path), "print")
    study = optuna.load_study(study_name="print", storage=backend_of(kind.format(tmp_path)).open())
    assert len(cache) == len(study.trials) == 12
    assert cache.workers(one.subnet for one in cache.trials()) == sum(bool(names) for names in told)


@pytest.mark.parametrize("kind", KINDS)
def test_every_storage_keeps_what_was_measured_and_two_supernets_apart(kind: str, tmp_path: Path) -> None:
    storage = kind.format(tmp_path / "new")
    cache, other = MeasurementCache(storage, "print"), MeasurementCache(storage, "another supernet's")
    assert not (tmp_path / "new").exists()  # looking makes nothing
    stored = trial(SHORT, 0.1 + 0.2, generation=4)  # which comes back to the last bit
    cache.put(stored)
    other.put(trial(FULL, 0.5))
    cache.put(trial(PRUNED, float("nan")))
    again = MeasurementCache(storage, "print")
    assert [one.subnet for one in again.trials()] == [SHORT, PRUNED]
    assert found(again, SHORT) == replace(stored, seconds=0.0, generation=found(again, SHORT).generation)
    assert math.isnan(found(again, PRUNED).score.value)
    assert again.get(FULL) is None
    cache.put(trial(FULL))
    assert again.get(FULL) is None
    again.refresh()
    assert again.get(FULL) is not None


def test_the_first_of_two_measurements_counts_for_everybody(tmp_path: Path) -> None:
    one, other = (MeasurementCache(tmp_path / "m.db", "print") for _ in range(2))
    one.put(trial(SHORT, 0.25))
    other.put(trial(SHORT, 0.75))
    for cache in (one, other, MeasurementCache(tmp_path / "m.db", "print")):
        cache.refresh()
        assert found(cache, SHORT).score.value == 0.25


def test_a_journal_line_that_was_cut_short_is_undone_and_what_was_whole_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    cache = MeasurementCache(f"journal:{path}", "print")
    cache.put(trial(SHORT))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"study_id')
    assert len(MeasurementCache(f"journal:{path}", "print")) == 1
    MeasurementCache(f"journal:{path}", "print").put(trial(FULL))
    assert path.read_bytes().startswith(whole + b'{"op_code"')
    assert len(MeasurementCache(f"journal:{path}", "print")) == 2
