"""Stages: whole or not there, and none of a killed process for ever."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ldsearch.disk.files import lock
from ldsearch.disk.staging import dead, remove, staged
from ldsearch.runs.folder import claim

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
from pathlib import Path
from ldsearch.disk.staging import staged
with staged(Path(sys.argv[1])) as stage:
    (stage / "half").write_text("x")
    print("written", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "dies":
        os._exit(9)
"""


def started(target: Path, end: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM, str(target), end]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "written\n"
    return process


def test_the_next_call_removes_what_a_killed_one_left_and_nothing_of_one_that_runs(tmp_path: Path) -> None:
    target = tmp_path / "out"
    started(target, "dies").communicate("go\n")
    running = started(tmp_path / "other", "ends")
    assert len(list(tmp_path.glob(".out.*"))) == len(list(tmp_path.glob(".other.*"))) == 1
    assert [path.name[:5] for path in dead(tmp_path)] == [".out."]
    (tmp_path / ".out.notours").mkdir()  # seven letters
    with staged(target) as stage:
        (stage / "whole").write_text("x")
        assert [path for path in tmp_path.glob(".out.????????") if path != stage] == []
        assert dead(tmp_path) == []
    assert [path.name for path in target.iterdir()] == ["whole"]
    assert (tmp_path / ".out.notours").is_dir()
    running.communicate("go\n")
    assert (tmp_path / "other/half").is_file()


def test_where_nothing_is_written_no_folder_above_is_left(tmp_path: Path) -> None:
    def broken(target: Path) -> None:
        with contextlib.suppress(KeyError), staged(target) as stage:
            (stage / "half").write_text("x")
            if target.name == "beside":
                (target.parent / "of another").write_text("x")
            raise KeyError
        assert not target.exists()

    broken(tmp_path / "made/for/it")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    broken(tmp_path / "there/new/it")
    broken(tmp_path / "kept/new/beside")
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {
        *("there", "kept", "kept/new", "kept/new/of another")
    }


def test_a_half_written_file_is_dead_once_its_process_is(tmp_path: Path) -> None:
    for name in (".run.json.abcdefgh", ".run.json.12345678", "run.json"):
        (tmp_path / name).write_text("{")
    with (tmp_path / ".run.json.12345678").open() as held:
        assert lock(held.fileno())
        assert [path.name for path in dead(tmp_path)] == [".run.json.abcdefgh"]
        remove(dead(tmp_path))
        assert len(list(tmp_path.iterdir())) == 2
    assert [path.name for path in dead(tmp_path)] == [".run.json.12345678"]


def test_where_files_cannot_be_locked_only_old_ones_are_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldsearch.disk.staging.lock", lambda handle: False)
    for name, age in ((".run.json.abcdefgh", 3600), (".run.json.12345678", 5)):
        (tmp_path / name).write_text("{")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert [path.name for path in dead(tmp_path)] == [".run.json.abcdefgh"]


def test_a_run_that_goes_on_removes_what_a_killed_worker_was_writing(tmp_path: Path) -> None:
    writes = """
import os, sys
from pathlib import Path
from ldsearch.disk.files import write_atomic
os.fsync = lambda handle: os.kill(os.getpid(), 9)
write_atomic(Path(sys.argv[1]) / "trials.csv", "half")
"""
    assert claim(tmp_path, "run.json", {"seed": 1})
    subprocess.run([sys.executable, "-c", writes, str(tmp_path)], cwd=ROOT)
    assert len(list(tmp_path.glob(".trials.csv.*"))) == 1
    assert not claim(tmp_path, "run.json", {"seed": 1})
    assert os.listdir(tmp_path) == ["run.json"]
