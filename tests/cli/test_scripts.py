"""For scripts: --quiet and --json, in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import read

RUN = "import sys; from ldsearch.cli import main; sys.argv[0] = 'ldsearch'; main()"


def ldsearch(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", RUN, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_is_all_that_is_printed_and_says_what_was_found(place: Path) -> None:
    found = ldsearch("--json", "evolve", "--evaluations", "5", "--budget", "0.9")
    assert found.returncode == 0, found.stderr
    best = read(place / "runs/tiny-evolve/best.json")
    assert json.loads(found.stdout) == {"run": "runs/tiny-evolve", **best}
    scored = json.loads(ldsearch("--json", "evaluate", "runs/tiny-evolve").stdout)
    assert scored["score"] == best["held_out"]["score"]
    assert scored["subnet"] == best["subnet"]


def test_quiet_prints_nothing_but_errors(place: Path) -> None:
    quiet = ldsearch("--quiet", "info", "runs/tiny")
    assert (quiet.returncode, quiet.stdout) == (0, "")
    wrong = ldsearch("--json", "info", "runs/nothing")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: ")
