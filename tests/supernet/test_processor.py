"""Probes of the processor: which precision it trains in, and freed memory."""

import subprocess
import sys
import time

import pytest
import torch

from ldsearch.supernet import processor

_SOFTMAXES = """
import os, sys, torch
from ldsearch.supernet.processor import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
import resource
large = torch.zeros(1500, 10_000)
large.softmax(-1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    large.softmax(-1)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> tuple[bool, int]:
    """Whether memory is kept, and the pages that twenty operations of 60 MB each had to be given."""
    done = subprocess.run(
        [sys.executable, "-c", _SOFTMAXES, how], capture_output=True, text=True, check=True, env={}
    )
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


def test_kept_memory_is_used_again() -> None:
    kept, faults = _faults("keep")
    if not kept:
        pytest.skip("this system's malloc is not glibc's")
    # A block may be cut in two and be too small a few times; left alone, every operation is given its pages.
    assert faults < _faults("leave")[1] / 4


def test_an_environment_with_thresholds_of_its_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    processor.keep_freed_memory.cache_clear()
    assert not processor.keep_freed_memory()
    processor.keep_freed_memory.cache_clear()


def test_the_precision_that_multiplies_faster_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(precision: torch.dtype, hidden: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02 if hidden.dtype == precision else 0.0)
        return hidden

    # Of processors without instructions for bf16 some take thirty times as long: nothing is multiplied here.
    for precision, others in ((torch.float32, True), (torch.bfloat16, False)):
        monkeypatch.setattr(torch.nn.functional, "linear", lambda h, w, p=precision: slow(p, h, w))
        processor.bf16_gain.cache_clear()
        assert processor.bf16_is_fast() is others
    processor.bf16_gain.cache_clear()
