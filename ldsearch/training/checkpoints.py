"""Checkpoints: written before a stop, gone on from only where whole, and one line where the disk is full."""

import errno
import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from types import TracebackType

from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ldsearch.errors import RunError
from ldsearch.interruption import Stop


class StopAfterSaving(TrainerCallback):
    """Once a stop is requested: saves after the step under way, then raises ``Interrupted``.

    It raises instead of asking the Trainer to end. The Trainer would first evaluate as if the epoch were
    over, take that for a candidate of ``--load_best_model_at_end``, and, where a best checkpoint is known
    and ``--save_total_limit`` is 1, delete the checkpoint that was just written.

    Args:
        stop: Says whether a stop is requested.
    """

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self._saving = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Save, unless the epoch ends here: its evaluation belongs before the checkpoint."""
        if state.epoch is not None and not float(state.epoch).is_integer():
            self._save_if_requested(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Save; the Trainer evaluates first."""
        self._save_if_requested(state, control)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Stop, if that is what was saved for."""
        if self._saving:
            self.stop.check()

    def _save_if_requested(self, state: TrainerState, control: TrainerControl) -> None:
        # After the last step there is nothing left to stop.
        if self.stop.requested is not None and state.global_step < state.max_steps:
            control.should_save = self._saving = True


def last_complete_checkpoint(checkpoints: Path) -> str | None:
    """The newest checkpoint that was written to its end; those that were not are removed.

    A training killed while it saved leaves a folder from which it could not, or only seemingly, go on.
    """
    steps = [
        path
        for path in checkpoints.glob("checkpoint-*")
        if path.is_dir() and re.fullmatch(r"checkpoint-\d+", path.name)
    ]
    for path in sorted(steps, key=lambda path: int(path.name.split("-")[1]), reverse=True):
        if _is_whole(path):
            return str(path)
        shutil.rmtree(path)
    return None


def _is_whole(checkpoint: Path) -> bool:
    try:
        # The Trainer writes this file last. What lies before it could still be cut short if the machine, not
        # only the process, went down; both formats end, or say where they end, so that it shows.
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        with safe_open(checkpoint / "model.safetensors", framework="pt"):
            pass
    except (OSError, ValueError, SafetensorError):
        return False
    states = [checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *checkpoint.glob("rng_state*.pth")]
    return len(states) > 2 and all(map(zipfile.is_zipfile, states))


def remove_checkpoints(checkpoints: Path) -> None:
    """Remove them all; what else lies there (TensorBoard's logs) is the user's and stays."""
    for checkpoint in checkpoints.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    if checkpoints.is_dir() and not any(checkpoints.iterdir()):
        checkpoints.rmdir()


class Writing:
    """Around code that writes to a folder: a full disk is one line, everything else passes as it is.

    No ``except`` could be as narrow: tokenizers raises a bare ``Exception``, torch a ``RuntimeError``.

    Args:
        folder: What the line names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reason = error and _full(error)
        if reason:
            raise RunError(
                f"cannot write to {self.folder}: {reason}; free some space and run the same command again"
            ) from error


def _full(error: BaseException) -> str | None:
    """What is full, if that is what the error says."""
    number = error.errno if isinstance(error, OSError) else None
    # Rust's way to say it, in safetensors and tokenizers.
    if said := re.search(r"\(os error (\d+)\)", str(error)):
        number = int(said[1])
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return os.strerror(number)
    # torch's writer loses the number, and trips over its own shortened file on the way out.
    if isinstance(error, RuntimeError) and "iostream error" in f"{error} {error.__context__}":
        return "torch could not write a file to its end"
    return None
