"""``ldsearch info runs/``: sizes, and the removal of leftovers after asking."""

import io
from pathlib import Path

import pytest

from tests.cli.conftest import Ldsearch


def test_a_folder_of_runs_is_listed_and_cleaned_after_asking(
    ldsearch: Ldsearch, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = place / "runs/tiny/.best.abcdefgh"  # a folder that no process has locked
    left.mkdir()
    (left / "model").write_bytes(b"x" * 3 * 2**20)
    before = {path for path in place.rglob("*") if left not in (path, *path.parents)}
    told = ldsearch.done("info", "runs")
    assert "supernet" in told.out
    assert ".best.abcdefgh (3.0 MiB)" in told.out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert ldsearch("info", "runs", "--clean").code == 130
    assert left.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ldsearch.done("info", "runs", "--clean")
    assert set(place.rglob("*")) == before
    assert "nothing was left" in ldsearch("info", "runs", "--clean").out
