"""Storages that several share: one winner each, whatever was whole stays, a line for what fails."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from ldsearch.storage import MeasurementCache
from tests.storage.test_measurements import FULL, PRUNED, SHORT, trial

ROOT = Path(__file__).parent.parent
KINDS = ("sqlite:///{}/m.db", "journal:{}/m.log")


PROGRAM = """
import sys
from ldsearch.storage import MeasurementCache
from tests.storage.test_measurements import trial
from ldsearch.subnet import Subnet
from ldsearch.storage.claims import name_of
cache = MeasurementCache(sys.argv[1], "print")
print("ready", flush=True)
sys.stdin.readline()
subnets = {}
for reference in range(16, 28):
    subnet = Subnet.of_encoder(range(3), (9, 5, 1), reference)
    subnets[name_of(subnet.to_json())] = subnet
for name in subnets:
    held, again = cache.claims.take([name])
    assert not again
    if held:
        cache.put(trial(subnets[name]))
        print(name, flush=True)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_want_the_same_at_once_have_one_winner_each(kind: str, tmp_path: Path) -> None:
    """They also make the tables of a new file at once."""
    command = [sys.executable, "-c", PROGRAM, kind.format(tmp_path)]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(set(chain(*told))) == sum(map(len, told)) == 12
    cache = MeasurementCache(kind.format(tmp_path), "print")
    assert len(cache) == len(cache._study.trials) == 12
    assert cache.workers(one.subnet for one in cache.trials()) == sum(bool(names) for names in told)


@pytest.mark.parametrize("kind", KINDS)
def test_every_storage_keeps_what_was_measured_and_two_supernets_apart(kind: str, tmp_path: Path) -> None:
    storage = kind.format(tmp_path / "new")
    cache, other = MeasurementCache(storage, "print"), MeasurementCache(storage, "another supernet's")
    assert not (tmp_path / "new").exists()  # looking makes nothing
    cache.put(trial(SHORT, 0.1 + 0.2))
    other.put(trial(FULL, 0.5))
    cache.put(trial(PRUNED, float("nan")))
    again = MeasurementCache(storage, "print")
    assert [one.subnet for one in again.trials()] == [SHORT, PRUNED]
    found = again.get(SHORT)
    assert found is not None
    assert (found.score.value, dict(found.costs)) == (0.1 + 0.2, dict(trial(SHORT).costs))
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
        found = cache.get(SHORT)
        assert found is not None
        assert found.score.value == 0.25


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
