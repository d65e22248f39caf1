"""Two processes are one: torchrun on gloo, changing blocks, accumulation, unlike ranks; the same weights."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WORKER = str(Path(__file__).with_name("distributed_worker.py"))


def run(folder: Path, processes: int, batch: int, strategy: str, kind: str) -> list[dict[str, Any]]:
    """What each process saved."""
    folder.mkdir()
    launch = [sys.executable]
    if processes > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [*launch, WORKER, str(folder), str(batch), strategy, kind]
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=300)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(processes)]


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [("lengthdrop", "classification"), ("layerdrop", "classification"), ("lengthdrop", "tokens")],
)
def test_two_processes_end_where_one_does_on_the_same_global_batch(tmp_path, strategy, kind):
    """LayerDrop's rates are learned."""
    first, second = run(tmp_path / "two", 2, 6, strategy, kind)
    (alone,) = run(tmp_path / "one", 1, 12, strategy, kind)
    assert alone["moved"]
    assert first["drawn"] == second["drawn"] == alone["drawn"]
    assert len(set(alone["drawn"])) > 5
    assert torch.equal(first["rates"], second["rates"])
    torch.testing.assert_close(first["rates"], alone["rates"], atol=1e-4, rtol=0)
    assert (len(alone["rates"].unique()) > 1) == (strategy == "layerdrop")
    for name, tensor in alone["weights"].items():
        assert torch.equal(first["weights"][name], second["weights"][name]), name
        torch.testing.assert_close(first["weights"][name], tensor, atol=1e-7, rtol=0)
