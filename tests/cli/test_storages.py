"""A storage that workers share, from the command line: it fails in one line, goes on, and is read again."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pandas as pd
import pytest

from ldsearch.storage import MeasurementCache
from tests.cli.conftest import WILD_SEARCH, Ldsearch, read

ROOM = 12  # entries, of claims and of measurements, that the disk has room for


@contextmanager
def small_disk() -> Iterator[None]:
    left = ROOM
    add = optuna.Study.add_trial

    def store(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(study, trial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.Study, "add_trial", store)
        yield


def test_a_full_disk_is_one_line_the_same_command_goes_on_and_pareto_reads_the_same_storage(
    ldsearch: Ldsearch, wild_place: Path
) -> None:
    storage, run = f"journal:{wild_place}/shared.log", "runs/shared"
    search = ("evolve", *WILD_SEARCH, "--name", "shared", "--storage", storage)
    with small_disk():
        outcome = ldsearch(*search)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == (
        f"error: cannot use the measurement cache {wild_place}/shared.log: No space left on device"
    )
    assert "Traceback" not in outcome.err
    fingerprint = read(wild_place / run / "run.json")["identity"]["fingerprint"]
    kept = len(MeasurementCache(storage, fingerprint))
    assert 0 < kept < ROOM

    ldsearch.done(*search)
    told = read(wild_place / run / "run.json")
    assert told["storage"] == f"{wild_place}/shared.log"
    # As found again, and not measured again; a lone search finds its own, too.
    assert told["this_call"]["search"]["cached"] >= kept
    frontier = (wild_place / run / "frontier.csv").read_text().splitlines()
    before = (wild_place / "runs/tiny-evolve/frontier.csv").read_text().splitlines()
    assert [line.split(",")[:11] for line in frontier] == [line.split(",")[:11] for line in before]

    lost = ldsearch("info", run, "--most-accurate")
    assert (lost.code, lost.out) == (2, "")
    assert lost.err == (
        f"error: the workers of {run} shared {wild_place}/shared.log: say where it is with --storage\n"
    )
    found = ldsearch.done("info", run, "--budget", 0.7, "--storage", storage)
    assert found.err == ""
    # Of what this storage has: the search's own measurements and its controls'.
    tables = [pd.read_csv(wild_place / run / name) for name in ("trials.csv", "controls.csv")]
    measured = pd.concat(tables).query("macs_share <= 0.7")
    best = measured.sort_values(["score", "macs"], ascending=[False, True]).iloc[0]
    assert f"chosen: accuracy {best['score']:.4f} at {best['macs_share']:.3f} of the MACs" in found.out
    other = ldsearch("info", run, "--most-accurate", "--storage", f"sqlite:///{wild_place}/none.db")
    assert other.err == f"error: {wild_place}/none.db has no measurements of {run}\n"
