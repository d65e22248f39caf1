"""The command line, a place with a finished search, and checks that start no process."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ldsearch.export import check, reader, timing
from ldsearch.export.card import Timed
from tests.cli.conftest import ldsearch, wild, wild_place

__all__ = ["ldsearch", "timing_jobs", "wild", "wild_place"]

FASTER = Timed("forward", 1, 10, 1.0, 0.9, 1.1, 2.0, "stock sdpa", 0.5, 0.4, 5, False, "cpu", 1)


@pytest.fixture
def timing_jobs(monkeypatch: pytest.MonkeyPatch) -> list[timing.TimingJob]:
    """Exports are read by this process, where what a new one adds does not matter; nothing is timed."""
    jobs: list[timing.TimingJob] = []

    def planted(folders: Sequence[Path], job: timing.TimingJob) -> Iterator[list[Timed]]:
        jobs.append(job)
        yield from ([FASTER] for _ in folders)

    monkeypatch.setattr(timing, "timings", planted)
    monkeypatch.setattr(check, "run_reader", reader.main)
    return jobs
