"""Probes and settings for the processor at hand: its instructions, bf16 on it, freed memory kept."""

import ctypes
import os
import platform
import time
from functools import cache
from pathlib import Path

import torch

_SIZES = (512, 384, 1536)  # of the probe's product: some milliseconds
_REPEATS = 5
# bf16 halves what is read and written, but casts weights and rounds: it must win clearly to be worth it.
_GAIN = 1.3
# Names and values of glibc's mallopt: nothing goes back to the system, nothing is mapped on its own.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1
FACTS = Path("/proc/cpuinfo")


def processor_flags(facts: Path = FACTS) -> frozenset[str] | None:
    """Names of the instructions that this processor has; None where the system does not say."""
    try:
        text = facts.read_text(encoding="utf-8")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    named = (values.split() for name, _, values in lines if name.strip() in ("flags", "Features"))
    return frozenset(flag for flags in named for flag in flags) or None


def bf16_step() -> int:
    """Tokens in multiples of which attention in bf16 is fast here: 8 on AMX, elsewhere any.

    A multiple of 16, which a tile of AMX has rows, is no faster, and more tokens (results/deploy/graphs).
    """
    return 8 if "amx_bf16" in (processor_flags() or ()) else 1


@cache
def bf16_gain() -> float:
    """How many times faster this processor multiplies matrices in bf16 than in fp32, by a probe of both.

    Instructions alone do not tell: a Xeon with AVX-512 BF16 whose AMX is hidden from a virtual machine takes
    1.8 times as long in bf16 as in fp32, one with AMX an eighth (results/training). Below 1 where bf16 is
    emulated.
    """
    best = {}
    rows, enter, leave = _SIZES
    for dtype in (torch.float32, torch.bfloat16):
        hidden, weights = torch.ones(rows, enter, dtype=dtype), torch.ones(leave, enter, dtype=dtype)
        taken = []
        for _ in range(_REPEATS + 1):
            start = time.perf_counter()
            torch.nn.functional.linear(hidden, weights)
            taken.append(time.perf_counter() - start)
        best[dtype] = min(taken[1:])
    return best[torch.float32] / best[torch.bfloat16]


def bf16_is_fast() -> bool:
    """Whether this processor should train in bf16."""
    return bf16_gain() >= _GAIN


@cache
def keep_freed_memory() -> bool:
    """Have this process keep the memory that tensors free, for the next ones; returns whether it does.

    glibc returns large blocks to the system and gets them again page by page, zeroed, at the next operation:
    a softmax of 57 MB takes three times as long so (results/training). Only glibc is told, and not where the
    environment sets its thresholds (``MALLOC_...``, ``GLIBC_TUNABLES``).
    """
    told = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if told or mallopt is None or "glibc" not in platform.libc_ver():
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
