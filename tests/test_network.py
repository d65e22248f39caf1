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


LACKING = ("--data no/such", "--data t.csv --model no/such", "--data t.csv --push_to_hub")
# The libraries read the environment where they are imported: once, then a fork for each.
PROGRAM = """
import os, sys, ldsearch.bench, ldsearch.commands.train_supernet
from ldsearch.cli import main
for place, words in enumerate(sys.argv[1:]):
    if os.fork():
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        continue
    os.dup2(os.open(f"{place}.txt", os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = ["ldsearch", "train-supernet", *words.split(), "--max_steps", "1"]
    main()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is written on standard error without what is lacking, in less than a minute in all."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "t.csv").write_text(reviews())
    with socket.socket() as closed:  # a port that refuses
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    kept = {name: value for name, value in os.environ.items() if name not in {"HF_HUB_OFFLINE", *proxies}}
    environment = {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, *LACKING]
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert time.monotonic() - start < 60  # most of it imports; retries take 23 seconds more
    assert done.stdout.split() == ["1"] * len(LACKING), done.stderr
    return [(folder / f"{place}.txt").read_text() for place in range(len(LACKING))]


@pytest.mark.parametrize("place", range(len(LACKING)), ids=LACKING)
def test_a_hub_that_cannot_be_reached_is_one_line_in_seconds(told: list[str], place: int) -> None:
    assert told[place].startswith(("error: cannot load the ", "error: the Trainer refuses"))
    assert "cannot be reached" in told[place]
    assert told[place].count("\n") == 1, told[place]
