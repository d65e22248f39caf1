"""What a latency was measured on: device, threads, precision, versions; and how to wait for the device."""

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ldsearch.fingerprint import versions


def device_facts(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """For headers: latencies compare only where these are equal."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "versions": versions(),
    }


def synchroniser(device: torch.device) -> Callable[[], None]:
    """Waits until the device has done what it was given; nothing to wait for on a CPU."""
    if device.type == "cpu":
        return lambda: None
    return lambda: torch.accelerator.synchronize(device)


def load_average() -> float | None:
    """Threads that wanted a processor in the last minute, on average; None where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def crowding(load: float | None, processors: int, threads: int) -> str:
    """What a load says before anything is timed: others compute too. In words; empty where they do not.

    A load that stays the same slows everything down alike, which repeats cannot show.
    """
    if load is None or load <= max(0.5, processors - threads):
        return ""
    return (
        f"busy machine: a load of {load:.1f} on {processors} processors before anything was timed; "
        "milliseconds are too long, ratios may be right"
    )


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """With so many threads inside an operation while the block runs; None: as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _processor() -> str:
    """The processor's own name, which ``platform`` knows on few systems."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
