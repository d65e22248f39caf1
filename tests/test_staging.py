"""Stages: whole or not there, and none of a killed process for ever."""

import os
import subprocess
import sys
import time
from pathlib import Path

from ldsearch.staging import dead, remove, staged

ROOT = Path(__file__).parents[1]
PROGRAM = """
import os, sys
from pathlib import Path
from ldsearch.staging import staged
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


def test_a_half_written_file_is_dead_once_nobody_can_be_writing_it(tmp_path: Path) -> None:
    for name, age in ((".run.json.abcdefgh", 3600), (".run.json.12345678", 5), ("run.json", 3600)):
        path = tmp_path / name
        path.write_text("{")
        os.utime(path, (time.time() - age,) * 2)
    assert [path.name for path in dead(tmp_path)] == [".run.json.abcdefgh"]
    remove(dead(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
