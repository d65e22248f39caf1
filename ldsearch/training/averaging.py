"""Checkpoint averaging: the mean of the last weights of a training (Vaswani et al. 2017, Sec. 6.1)."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ldsearch.errors import TrainingError, one_line
from ldsearch.training.checkpoints import last_complete_checkpoint


def average_checkpoints(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of every weight, in fp32 (fp64 where it is saved so); what is no real number, from the last.

    Args:
        folders: Model folders or checkpoints with safetensors, of one model; the last one counts as the
            newest. One is held in memory at a time.

    Raises:
        TrainingError: If there are none, one cannot be read, or they differ in names or shapes.
    """
    if not folders:
        raise TrainingError("no checkpoints to average")
    total = {name: _wide(tensor) for name, tensor in _weights(folders[0]).items()}
    for folder in folders[1:]:
        weights = _weights(folder)
        _check_alike(total, weights, folders[0], folder)
        for name, tensor in weights.items():
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
    named = re.compile(r"checkpoint-(\d+)")
    steps = {int(found[1]): path for path in checkpoints.glob("*") if (found := named.fullmatch(path.name))}
    if len(steps) < count:
        raise TrainingError(
            f"{checkpoints} holds {len(steps)} checkpoints of the {count} to average: save more often, and "
            "keep them with --save_total_limit"
        )
    return average_checkpoints([steps[step] for step in sorted(steps)[-count:]])


def _weights(folder: Path) -> dict[str, Tensor]:
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


def _wide(tensor: Tensor) -> Tensor:
    return (
        tensor.to(torch.promote_types(tensor.dtype, torch.float32)) if tensor.is_floating_point() else tensor
    )


def _check_alike(
    first: dict[str, Tensor], other: dict[str, Tensor], folder: Path, other_folder: Path
) -> None:
    alone = sorted(first.keys() ^ other.keys())
    if alone:
        raise TrainingError(f"only one of {folder} and {other_folder} has a weight {alone[0]}")
    for name, tensor in other.items():
        if tensor.shape != first[name].shape:
            raise TrainingError(
                f"{name} is {tuple(first[name].shape)} in {folder}, {tuple(tensor.shape)} in {other_folder}"
            )
