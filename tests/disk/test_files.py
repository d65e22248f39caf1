"""Atomic files: whole or not there."""

import json
import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from ldsearch.disk.files import write_atomic, write_json, write_together


def test_writing_again_replaces_the_content_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"\x00\xff\n and more than what follows")
    with path.open("rb") as reader:
        write_atomic(path, "Grüße\r\nzwei\n")
        assert reader.read(3) == b"\x00\xff\n"  # whoever reads the old file goes on reading it
    assert path.read_bytes() == b"Gr\xc3\xbc\xc3\x9fe\r\nzwei\n"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("no space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_midway_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    path = tmp_path / "file"
    write_atomic(path, "old")
    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    for target in (path, tmp_path / "new"):
        with pytest.raises(type(error)):
            write_atomic(target, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_files_that_belong_together_are_all_written_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: dict[Path, str | bytes] = {tmp_path / name: f"new {name}" for name in "abc"}
    write_atomic(tmp_path / "a", "old")
    sync, room = os.fsync, iter("ab")

    def full(handle: int) -> None:
        if next(room, None) is None:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_together(contents)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}
    monkeypatch.setattr(os, "fsync", sync)
    write_together(contents)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == contents


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_file_is_as_readable_as_the_umask_allows(tmp_path: Path, umask: int, mode: int) -> None:
    previous = os.umask(umask)
    try:
        write_atomic(tmp_path / "file", "text")
        assert os.umask(umask) == umask  # and the process keeps its umask
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_json_is_readable_and_what_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path, fields = tmp_path / "a.json", {"name": "Grüße", "list": [1, 2.5, None]}
    write_json(path, fields)
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == fields
    assert text.startswith('{\n  "name": "Grüße"')
    assert text.endswith("}\n")
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["a.json"]
