"""Run folders: whose they are, and which supernet is the newest."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from ldsearch.errors import RunError, SupernetError
from ldsearch.runs import claim, newest_supernet, read_json


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_folder_is_made_and_marked(tmp_path: Path) -> None:
    claim(tmp_path / "runs" / "a", "run.json", {"seed": 1})
    assert json.loads((tmp_path / "runs" / "a" / "run.json").read_text())["identity"] == {"seed": 1}


def test_an_empty_folder_may_be_claimed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    claim(tmp_path / "a", "run.json", {"seed": 1})
    assert os.listdir(tmp_path / "a") == ["run.json"]


def test_the_same_run_may_claim_its_folder_again_and_changes_nothing(tmp_path: Path) -> None:
    # Tuples become lists in JSON: the identity must still be recognised.
    identity = {"seed": 1, "floors": (5, 2), "nested": {"levels": (1, 2, 3)}}
    claim(tmp_path / "a", "run.json", identity)
    (tmp_path / "a" / "trials.csv").write_text("half a search")
    before = listing(tmp_path)
    claim(tmp_path / "a", "run.json", identity)
    assert listing(tmp_path) == before


def test_a_finished_run_keeps_what_its_marker_says_beside_the_identity(tmp_path: Path) -> None:
    marker = tmp_path / "run.json"
    marker.write_text('{"identity": {"seed": 1}, "trials": 30}')
    claim(tmp_path, "run.json", {"seed": 1})
    assert read_json(marker)["trials"] == 30


@pytest.mark.parametrize(
    ("identity", "differs"),
    [
        ({"seed": 2, "space": "s"}, "seed"),
        ({"seed": 1, "space": "t"}, "space"),
        ({"seed": 1}, "space"),
        ({"seed": 1, "space": "s", "parity": True}, "parity"),
        ({"seed": 2, "space": "t"}, "seed, space"),
    ],
)
def test_another_run_is_refused_says_what_differs_and_touches_nothing(
    tmp_path: Path, identity: dict[str, object], differs: str
) -> None:
    claim(tmp_path / "a", "run.json", {"seed": 1, "space": "s"})
    before = listing(tmp_path)
    with pytest.raises(RunError, match="holds another run") as caught:
        claim(tmp_path / "a", "run.json", identity)
    assert f"its {differs} differ" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert listing(tmp_path) == before


def test_a_folder_with_other_things_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="not empty"):
        claim(tmp_path, "run.json", {"seed": 1})
    assert listing(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_file_in_the_place_of_the_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(RunError):
        claim(tmp_path / "a", "run.json", {"seed": 1})
    assert listing(tmp_path) == {"a": b"a file"}


def test_a_supernet_folder_is_no_place_for_a_search(tmp_path: Path) -> None:
    claim(tmp_path / "a", "training.json", {"seed": 1})
    with pytest.raises(RunError, match="another run"):
        claim(tmp_path / "a", "run.json", {"seed": 1})


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_a_damaged_marker_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match="damaged") as caught:
        claim(tmp_path, "run.json", {"seed": 1})
    assert "\n" not in str(caught.value)


def test_reading_a_folder_that_is_no_run_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run: it has no best\.json"):
        read_json(tmp_path / "best.json")


def test_an_identity_may_only_hold_what_json_can(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        claim(tmp_path / "a", "run.json", {"bound": Fraction(1, 5)})
    assert not (tmp_path / "a").exists()


def test_the_newest_supernet_is_the_one_finished_last_whatever_its_name(tmp_path: Path) -> None:
    for name, seconds in (("a", 300), ("b", 100), ("c", 200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "supernet.json").write_text("{}")
        os.utime(tmp_path / name / "supernet.json", (seconds, seconds))
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "training.json").write_text("{}")
    assert newest_supernet(tmp_path) == tmp_path / "a"
    os.utime(tmp_path / "b" / "supernet.json", (400, 400))
    assert newest_supernet(tmp_path) == tmp_path / "b"


@pytest.mark.parametrize("there", [True, False])
def test_without_a_supernet_the_message_says_how_to_get_one(tmp_path: Path, there: bool) -> None:
    runs = tmp_path if there else tmp_path / "runs"
    with pytest.raises(SupernetError, match="ldsearch train-supernet"):
        newest_supernet(runs)


def test_two_live_processes_claim_one_run_folder_and_another_question_is_refused(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ldsearch.runs import claim; sys.stdin.readline(); "
        "print([claim(Path(sys.argv[1]) / str(i), 'run.json', {'seed': 1}) for i in range(50)])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [json.loads(child.communicate()[0].lower()) for child in children]
    assert [sum(first) for first in zip(*told, strict=True)] == [1] * 50
    assert [sorted(path.name for path in (tmp_path / "7").iterdir())] == [["run.json"]]
    with pytest.raises(RunError, match="its seed differ"):
        claim(tmp_path / "7", "run.json", {"seed": 2})
