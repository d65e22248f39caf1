"""Without a network a hub id is refused at once, in one line."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import reviews

ROOT = Path(__file__).parents[1]


LACKING = {
    "data": ("--data", "no/such"),
    "model": ("--data", "t.csv", "--model", "no/such"),
    "push": ("--data", "t.csv", "--push_to_hub"),
}


@pytest.mark.parametrize("words", LACKING.values(), ids=LACKING)
def test_a_hub_that_cannot_be_reached_is_one_line_in_seconds(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "t.csv").write_text(reviews())
    with socket.socket() as closed:  # a port that refuses
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    kept = {name: value for name, value in os.environ.items() if name not in {"HF_HUB_OFFLINE", *proxies}}
    environment = {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ldsearch", "train-supernet", *words, "--max_steps", "1"]
    start = time.monotonic()
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert told.returncode == 1
    assert told.stderr.startswith(("error: cannot load the ", "error: the Trainer refuses"))
    assert "cannot be reached" in told.stderr
    assert told.stderr.count("\n") == 1, told.stderr
    assert time.monotonic() - start < 60  # most of it imports; retries take 23 seconds more
