"""Another process that runs exported folders, as who asks it sees it."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ldsearch.errors import ExportError
from ldsearch.export.check import ASKED, INPUTS, Batch, Readers, receive
from ldsearch.export.timing import Timed, Timing
from ldsearch.files import write_json


class FreshProcess:
    """``check.answers`` in one new process, then ``timing.timings``; a context, at whose end it is gone.

    Args:
        scratch: What it reads is left in a folder below this one, for as long as the context lasts.
        timing: What is timed.
    """

    where = "a fresh process"

    def __init__(self, scratch: Path, timing: Timing) -> None:
        self._place = tempfile.TemporaryDirectory(dir=scratch, prefix=".check.")
        self._stderr = Path(self._place.name) / "stderr"
        self._timing = timing
        self._exports: Sequence[Readers] = ()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "FreshProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:  # closes its pipes and waits
                pass
        self._place.cleanup()

    def answers(self, exports: Sequence[Readers], batches: Sequence[Batch], device: str) -> Iterator[Any]:
        """As ``check.answers``.

        Raises:
            ExportError: If the process fails.
        """
        place = Path(self._place.name)
        self._exports = [(folder.resolve(), list(readers)) for folder, readers in exports]
        write_json(
            place / ASKED,
            {
                "exports": [[str(folder), readers] for folder, readers in self._exports],
                "batches": len(batches),
                "device": device,
                "timing": asdict(self._timing),
            },
        )
        arrays = {f"{i}.{key}": array for i, batch in enumerate(batches) for key, array in batch.items()}
        np.savez(place / INPUTS, **arrays)  # type: ignore[arg-type]  # its only other argument is a flag
        command = [sys.executable, "-m", "ldsearch.export.check", str(place)]
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        for _, readers in self._exports:
            for _ in range(len(readers) * (1 + len(batches))):
                yield self._next("loading")

    def timings(self) -> Iterator[list[Timed]]:
        """Of each export; this process should do nothing meanwhile.

        Raises:
            ExportError: If the process fails.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what ended it stands on its stderr
            self._process.stdin.write(b"time\n")
            self._process.stdin.flush()
        for _ in self._exports:
            yield [Timed(**fields) for fields in self._next("latency")]

    def _next(self, check: str) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return receive(self._process.stdout)
        except EOFError:
            code = self._process.wait()
            said = self._stderr.read_text(encoding="utf-8", errors="replace")
            last = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise ExportError(
                f"check of the {check} failed: the export does not run in a fresh process: {last}; nothing "
                "was written"
            ) from None
