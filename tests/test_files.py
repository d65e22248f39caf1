"""Atomic files: whole or not there."""

import json
import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from ldsearch.files import write_atomic, write_json


def out_of_space(*_: object) -> NoReturn:
    raise OSError("no space left on device")


def test_text_and_bytes_arrive_as_they_are(tmp_path: Path) -> None:
    write_atomic(tmp_path / "text", "Grüße\r\nzwei\n")
    write_atomic(tmp_path / "bytes", b"\x00\xff\n")
    assert (tmp_path / "text").read_bytes() == b"Gr\xc3\xbc\xc3\x9fe\r\nzwei\n"
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff\n"


def test_writing_again_replaces_the_content_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", "a long first content")
    write_atomic(tmp_path / "file", "second")
    assert (tmp_path / "file").read_text() == "second"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_midway_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    monkeypatch.setattr(os if step == "fsync" else Path, step, out_of_space)
    with pytest.raises(OSError, match="no space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_first_write_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "file", "new")
    assert os.listdir(tmp_path) == []


def test_a_reader_of_the_old_file_keeps_reading_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old content")
    with path.open() as reader:
        write_atomic(path, "new")
        assert reader.read() == "old content"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_file_is_as_readable_as_the_umask_allows(tmp_path: Path, umask: int, mode: int) -> None:
    previous = os.umask(umask)
    try:
        write_atomic(tmp_path / "file", "text")
        assert os.umask(umask) == umask  # and the process keeps its umask
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_json_is_indented_readable_and_ends_with_a_newline(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "Grüße", "list": [1, 2.5, None]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"name": "Grüße", "list": [1, 2.5, None]}
    assert "Grüße" in text
    assert text.startswith('{\n  "name"')
    assert text.endswith("}\n")


def test_what_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]
