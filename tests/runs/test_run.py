"""Run folders: whose they are, and which supernet is the newest."""

import contextlib
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from ldsearch.errors import LdsearchError, MachineError, RunError, SupernetError
from ldsearch.runs.folder import claim, claimed
from ldsearch.runs.run import newest_supernet, read_json


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_same_run_may_claim_its_folder_again_and_changes_nothing(tmp_path: Path) -> None:
    # Tuples become lists in JSON: the identity must still be recognised.
    identity = {"seed": 1, "floors": (5, 2), "nested": {"levels": (1, 2, 3)}}
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "runs" / "new", tmp_path / "empty"):
        assert claim(folder, "run.json", identity)
        assert read_json(folder / "run.json")["identity"]["seed"] == 1
        (folder / "trials.csv").write_text("half a search")
        before = listing(folder)
        assert not claim(folder, "run.json", identity)
        assert listing(folder) == before


def test_another_run_is_refused_says_what_differs_and_touches_nothing(tmp_path: Path) -> None:
    claim(tmp_path / "a", "run.json", {"seed": 1, "space": "s"})
    before = listing(tmp_path)
    for identity, differs in (
        ({"seed": 2, "space": "s"}, "seed"),
        ({"seed": 1}, "space"),
        ({"seed": 1, "space": "s", "parity": True}, "parity"),
        ({"seed": 2, "space": "t"}, "seed, space"),
    ):
        with pytest.raises(RunError, match=f"another run, which differs in {differs}:"):
            claim(tmp_path / "a", "run.json", identity)
    with pytest.raises(RunError, match="another run"):
        claim(tmp_path / "a", "training.json", {"seed": 1, "space": "s"})
    assert listing(tmp_path) == before


def test_other_things_are_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for place, words in ((tmp_path, "not empty"), (tmp_path / "thesis.tex", "another run")):
        with pytest.raises(RunError, match=words):
            claim(place, "run.json", {"seed": 1})
    with pytest.raises(TypeError):
        claim(tmp_path / "a", "run.json", {"bound": Fraction(1, 5)})
    assert listing(tmp_path) == {"thesis.tex": b"years of work"}
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_a_damaged_marker_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match="damaged") as caught:
        claim(tmp_path, "run.json", {"seed": 1})
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError, match=r"is not a run: it has no best\.json"):
        read_json(tmp_path / "best.json")


def test_the_newest_supernet_is_the_one_finished_last_whatever_its_name(tmp_path: Path) -> None:
    for there in (tmp_path, tmp_path / "runs"):
        with pytest.raises(SupernetError, match="ldsearch train-supernet"):
            newest_supernet(there)
    for name, seconds in (("a", 300), ("b", 100), ("c", 200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "supernet.json").write_text("{}")
        os.utime(tmp_path / name / "supernet.json", (seconds, seconds))
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "training.json").write_text("{}")
    assert newest_supernet(tmp_path) == tmp_path / "a"
    os.utime(tmp_path / "b" / "supernet.json", (400, 400))
    assert newest_supernet(tmp_path) == tmp_path / "b"


def test_live_processes_claim_one_run_folder_and_only_one_is_first(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ldsearch.runs.folder import claim; "
        "print('ready', flush=True); sys.stdin.readline(); "
        "print([claim(Path(sys.argv[1]) / str(i), 'run.json', {'seed': 1}) for i in range(50)])"
    )
    command, piped = [sys.executable, "-c", program, str(tmp_path)], subprocess.PIPE
    children = [subprocess.Popen(command, stdin=piped, stdout=piped, text=True) for _ in range(3)]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 3
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [json.loads(child.communicate()[0].lower()) for child in children]
    assert [sum(first) for first in zip(*told, strict=True)] == [1] * 50
    assert [sorted(path.name for path in (tmp_path / "7").iterdir())] == [["run.json"]]


def test_a_claim_is_taken_back_where_what_was_asked_is_refused(tmp_path: Path) -> None:
    def run(error: Exception | None, *files: str) -> list[str]:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        with contextlib.suppress(LdsearchError), claimed(folder, "run.json", {"seed": 0}):
            for name in files:
                (folder / name).write_text("kept")
            if error is not None:
                raise error
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    assert run(None) == ["run.json"]
    assert run(RunError("refused")) == []
    assert run(MachineError("no space")) == ["run.json"]
    assert run(RunError("refused"), "trials.csv") == ["run.json", "trials.csv"]
    claim(tmp_path / "mine", "run.json", {"seed": 0})
    with pytest.raises(RunError), claimed(tmp_path / "mine", "run.json", {"seed": 0}):
        raise RunError("of another worker, whose claim it is")
    assert (tmp_path / "mine" / "run.json").is_file()
