"""Tokens and passwords stay out of what is written."""

from pathlib import Path

import pytest

from ldsearch.disk.secrets import without_password
from ldsearch.errors import RunError
from ldsearch.options import Evolve, TrainSupernet, flags
from ldsearch.options.binding import changed
from ldsearch.storage.backends import backend_of
from tests.cli.conftest import TRAIN, Ldsearch

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:s3cret@host:5432/x", "postgresql+psycopg://me:***@host:5432/x"),
        ("postgresql://me:s3@cret:@host/x", "postgresql://me:***@host/x"),
        ("postgresql://host/x?user=me&password=s3cret&a=1", "postgresql://host/x?user=me&password=***&a=1"),
        ("postgresql://me@host/x", "postgresql://me@host/x"),
        ("journal:/a/b:c@d.log", "journal:/a/b:c@d.log"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_password_is_in_no_shown_url(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert changed(Evolve(storage=url)) == {"storage": shown}


def test_a_storage_that_cannot_be_read_is_refused_without_its_password() -> None:
    with pytest.raises(RunError) as refused:
        backend_of(f"me:{SECRET}://x:{SECRET}@h")
    assert f":{SECRET}@" not in str(refused.value)
    assert SECRET not in backend_of(f"postgresql+psycopg://me:{SECRET}@host/x?password={SECRET}").name


@pytest.mark.parametrize("flag", ["hub_token", "hub-token", "hub_tok"])
def test_a_token_is_in_no_record_and_no_command(flag: str) -> None:
    record = changed(TrainSupernet(trainer={flag: SECRET, "max_steps": "2"}))
    assert SECRET not in str(record)
    assert record["trainer"]["max_steps"] == "2"
    assert SECRET not in flags("train-supernet", {"trainer": {flag: SECRET}})  # as 0.1 recorded it


def test_no_file_of_a_run_holds_the_token_and_no_report_or_card_a_path(
    ldsearch: Ldsearch, place: Path
) -> None:
    ldsearch.done(*TRAIN, "--max_steps", 1, "--hub_token", SECRET, "--name", "new")
    ldsearch.done("evolve", "--supernet", "runs/new", "--evaluations", 4, "--name", "found")
    ldsearch.done("report", "runs/found")
    (place / "runs/found").rename(place / "runs/<b>found|[x]")
    ldsearch.done("export", "runs/<b>found|[x]", "out")
    files = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    travel = {"report.html", "README.md", "best.json", "run.json"}
    assert travel | {"training.json", "supernet.json"} <= {path.name for path in files}
    for path, content in files.items():
        assert SECRET.encode() not in content, path
        assert str(place).encode() not in content or path.name not in travel, path
    card = (place / "out/README.md").read_text()
    assert r"run \<b\>found\|\[x\]" in card
