"""Processes of their own whose imports are made already: forked from a server that has done nothing else."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ldsearch.export import reader
from ldsearch.latency import clock

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["ldsearch.bench", "ldsearch.export.timing", "transformers.models.bert.modeling_bert", "onnxruntime"]
)
Done = subprocess.CompletedProcess[str]


def run(work: Callable[..., Any], *arguments: Any) -> Done:
    """How a process ended that called ``work``, a function of a module, and what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("stdout", "stderr")]
        process = CONTEXT.Process(target=_heard, args=(files, work, arguments))
        process.start()
        process.join()
        written = (Path(file).read_text(errors="replace") for file in files)
        return Done([], int(process.exitcode or 0), *written)


def program(code: str, *arguments: object) -> Done:
    """As ``python -c`` with arguments."""
    return run(_execute, code, ["-c", *map(str, arguments)])


def _heard(files: Sequence[str], work: Callable[..., Any], arguments: Sequence[Any]) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    torch.set_num_threads(1)
    work(*arguments)


def _execute(code: str, arguments: list[str]) -> None:
    sys.argv = arguments
    exec(code, {"__name__": "__main__"})


def _read(place: str) -> None:
    clock.SECONDS = 0.0  # as few rounds as may be
    reader.main(Path(place))


# Stands for ``subprocess`` where exports are checked.
READERS = SimpleNamespace(
    run=lambda command, **_: run(_read, os.path.abspath(command[-1])),
    DEVNULL=subprocess.DEVNULL,
    PIPE=subprocess.PIPE,
)
