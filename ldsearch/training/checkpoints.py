"""Checkpoints: saved before a stop, resumed only where whole, averaged."""

import json
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ldsearch.errors import TrainingError, one_line
from ldsearch.training.drop_rates import RATES_FILE
from ldsearch.work.interruption import Stop

_STEP = re.compile(r"checkpoint-(\d+)")


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
    """The newest checkpoint that was written completely; newer ones are removed.

    A training killed while it saved leaves a folder from which it could not, or only seemingly, resume.
    """
    for path in reversed(_by_step(checkpoints)):
        if _is_whole(path):
            return str(path)
        shutil.rmtree(path)
    return None


def _by_step(checkpoints: Path) -> list[Path]:
    """The ``checkpoint-<step>`` folders, oldest first."""
    steps = {int(name[1]): path for path in checkpoints.glob("*") if (name := _STEP.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps) if steps[step].is_dir()]


def _is_whole(checkpoint: Path) -> bool:
    try:
        # The Trainer writes this file last. What lies before it could still be cut short if the machine, not
        # only the process, went down; both formats end, or say where they end, so that it shows.
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        for weights in {checkpoint / "model.safetensors", *checkpoint.glob("*.safetensors")}:
            with safe_open(weights, framework="pt"):
                pass
    except (OSError, ValueError, SafetensorError):
        return False
    states = [checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *checkpoint.glob("rng_state*.pth")]
    return len(states) > 2 and all(map(zipfile.is_zipfile, [*states, *checkpoint.glob(RATES_FILE)]))


def remove_checkpoints(checkpoints: Path) -> None:
    """Remove them all; what else lies there (TensorBoard's logs) is the user's and stays."""
    for checkpoint in checkpoints.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    if checkpoints.is_dir() and not any(checkpoints.iterdir()):
        checkpoints.rmdir()


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load the weights of a checkpoint.

    What is tied to another weight is not among them, and follows it.

    Raises:
        TrainingError: If some are no weights of the model.
    """
    unknown = model.load_state_dict(weights, strict=False).unexpected_keys
    if unknown:
        raise TrainingError(f"the checkpoint is of another model: this one has no {unknown[0]}")


def average_checkpoints(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of every weight (Vaswani et al. 2017, Sec. 6.1), in fp32, or fp64 where it is saved so.

    Integer buffers are those of the last one.

    Args:
        folders: Model folders or checkpoints with safetensors, of one model; the last one counts as the
            newest. One is held in memory at a time.

    Raises:
        TrainingError: If there are none, one cannot be read, or they differ in names or shapes.
    """
    if not folders:
        raise TrainingError("no checkpoints to average")
    first = folders[0]
    total = {
        name: tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        if tensor.is_floating_point()
        else tensor
        for name, tensor in read_weights(first).items()
    }
    for folder in folders[1:]:
        weights = read_weights(folder)
        if alone := sorted(total.keys() ^ weights.keys()):
            raise TrainingError(f"only one of {first} and {folder} has a weight {alone[0]}")
        for name, tensor in weights.items():
            if tensor.shape != total[name].shape:
                raise TrainingError(
                    f"{name} is {tuple(total[name].shape)} in {first}, {tuple(tensor.shape)} in {folder}"
                )
            total[name] = total[name] + tensor if tensor.is_floating_point() else tensor
    return {name: sums / len(folders) if sums.is_floating_point() else sums for name, sums in total.items()}


def average_last(checkpoints: Path, count: int) -> dict[str, Tensor]:
    """The mean of a training's last checkpoints; Fan et al. 2019 take ten for WMT.

    Args:
        checkpoints: The folder that holds ``checkpoint-<step>`` folders, as the Trainer writes them; a last
            one that was cut short is removed.
        count: How many.

    Raises:
        TrainingError: If there are fewer, or they cannot be averaged.
    """
    if count < 1:
        raise TrainingError(f"the mean is of 1 checkpoint or more, not {count}")
    last_complete_checkpoint(checkpoints)
    folders = _by_step(checkpoints)
    if len(folders) < count:
        raise TrainingError(
            f"{checkpoints} holds {len(folders)} checkpoints of the {count} to average: save more often, and "
            "keep them with --save_total_limit"
        )
    return average_checkpoints(folders[-count:])


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor in a folder's safetensors.

    Raises:
        TrainingError: If there is none, or one cannot be read.
    """
    weights: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                weights |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"cannot read the weights in {folder}: {one_line(error)}") from error
    if not weights:
        raise TrainingError(f"{folder} holds no safetensors")
    return weights
