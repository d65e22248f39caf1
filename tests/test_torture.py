"""Some seconds of scripts/torture.py: kills and wrong input lose, double, leave and leak nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def test_some_seconds_of_torture_find_nothing() -> None:
    pytest.importorskip("hypothesis")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "scripts/torture.py", "--minutes", "0.2", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts.pop("inputs") >= 10
    killed = counts.pop("killed")
    assert counts.pop("kills") == sum(count for count in killed.values() if isinstance(count, int)) >= 1
    counts.pop("seed")
    assert not any(counts.values()), done.stdout
