"""The command line, a place with a finished search, and checks that start no process."""

import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import dynamic_module_utils

from ldsearch.export import check, reader, timing
from ldsearch.export.folder import write_huggingface, write_onnx
from ldsearch.latency.measure import MeasuredLatency
from ldsearch.subnet import Subnet
from tests.cli.conftest import ldsearch, wild, wild_place

__all__ = ["FORMS", "ldsearch", "mine", "modules", "timing_jobs", "wild", "wild_place"]

FORMS = {
    "hf": write_huggingface,
    **{
        name: partial(write_onnx, runtime=name)
        for name in ("onnx", "onnx-int8", "openvino", "openvino-f32", "openvino-int8")
    },
}
FASTER = MeasuredLatency(
    subnet=Subnet.full(3),
    runtime="onnx",
    phase="forward",
    batch=1,
    length=10,
    median_ms=1.0,
    low_ms=0.9,
    high_ms=1.1,
    p95_ms=1.2,
    repeats=5,
    full_ms=2.0,
    full_runtime="eager",
    ratio=0.5,
    runtime_ratio=0.5,
    macs=400.0,
    macs_ratio=0.4,
    noisy=False,
)


@pytest.fixture
def timing_jobs(monkeypatch: pytest.MonkeyPatch) -> list[timing.TimingJob]:
    """Exports are read by this process, where what a new one adds does not matter; nothing is timed."""
    jobs: list[timing.TimingJob] = []

    def planted(
        folders: Sequence[Path], job: timing.TimingJob, keeps: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        jobs.append(job)
        return {"machine": "cpu, 1 threads", "latencies": [[FASTER.to_dict()] for _ in folders]}

    monkeypatch.setattr(timing, "timings", planted)
    monkeypatch.setattr(check, "run_reader", reader.main)
    monkeypatch.setattr("ldsearch.latency.clock.SECONDS", 0.0)
    return jobs


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where transformers copies code that it is told to trust."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def mine(wild_place: Path) -> Path:
    """The supernet's folder as anybody's fine-tuned model: nothing in it is of this package."""
    folder = wild_place / "mine"
    shutil.copytree(wild_place / "runs" / "tiny", folder, ignore=shutil.ignore_patterns("checkpoints"))
    for name in ("supernet.json", "training.json"):
        (folder / name).unlink(missing_ok=True)
    return folder
