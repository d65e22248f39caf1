"""Two processes are one: torchrun on gloo, changing blocks, accumulation, unlike ranks; the same weights."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import fresh
from tests.training import distributed_worker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes saved of every case, and what one saved."""
    folder = tmp_path_factory.mktemp("distributed")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [*launch, distributed_worker.__file__, str(folder / "two"), "6"]
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=300)
    alone = fresh.run(distributed_worker.main, folder / "one", 12)
    assert alone.returncode == 0, alone.stderr
    return folder


@pytest.mark.parametrize(("strategy", "kind"), distributed_worker.CASES)
def test_two_processes_end_where_one_does_on_the_same_global_batch(folder, strategy, kind):
    """LayerDrop's rates are learned."""

    def saved(processes: str, rank: int) -> dict[str, Any]:
        return torch.load(folder / processes / f"{strategy}-{kind}" / f"rank-{rank}.pt", weights_only=True)

    first, second, alone = saved("two", 0), saved("two", 1), saved("one", 0)
    assert alone["moved"]
    assert first["drawn"] == second["drawn"] == alone["drawn"]
    assert len(set(alone["drawn"])) > 5
    assert torch.equal(first["rates"], second["rates"])
    torch.testing.assert_close(first["rates"], alone["rates"], atol=1e-4, rtol=0)
    assert (len(alone["rates"].unique()) > 1) == (strategy == "layerdrop")
    for name, tensor in alone["weights"].items():
        assert torch.equal(first["weights"][name], second["weights"][name]), name
        torch.testing.assert_close(first["weights"][name], tensor, atol=1e-7, rtol=0)
