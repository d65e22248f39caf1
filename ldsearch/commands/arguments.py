"""The Trainer's arguments: our defaults, the user's flags, nothing unknown."""

import argparse
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments

from ldsearch.commands.train_options import TrainOptions
from ldsearch.errors import TrainingError, one_line


def training_arguments(folder: Path, options: TrainOptions) -> TrainingArguments:
    """The defaults of this package, overridden by the user's flags as the Trainer's command line reads them.

    Raises:
        TrainingError: If a flag is unknown or its value makes no sense.
    """
    accelerated = torch.accelerator.is_available()
    defaults = {
        "output_dir": folder / "checkpoints",
        "num_train_epochs": 3,
        "per_device_train_batch_size": 32,
        "learning_rate": 5e-4 if options.from_scratch else 5e-5,
        "warmup_steps": 0.1,
        "save_strategy": "epoch",
        "save_total_limit": options.average_last,
        "logging_steps": 100,
        "log_level": "warning",
        "report_to": "none",
        "use_cpu": not accelerated,
        "dataloader_pin_memory": accelerated,
        "remove_unused_columns": False,
        "seed": options.seed,
    }
    parser = HfArgumentParser(cast(Any, TrainingArguments))
    _raise_instead_of_exit(parser)
    flags = [text for name, value in defaults.items() for text in (f"--{name}", str(value))]
    try:
        arguments, unknown = parser.parse_args_into_dataclasses(
            args=[*flags, *options.trainer], return_remaining_strings=True, look_for_args_file=False
        )
    except (ValueError, ImportError) as error:
        raise TrainingError(f"the Trainer refuses its arguments: {one_line(error)}") from error
    if unknown:
        raise TrainingError(f"neither ldsearch nor the Trainer knows {' '.join(unknown)}")
    assert isinstance(arguments, TrainingArguments)
    if Path(str(arguments.output_dir)) != folder / "checkpoints":
        raise TrainingError("--output_dir is the run's own folder: choose it with --name and --runs")
    _check(arguments)
    if not 1 <= options.average_last <= (arguments.save_total_limit or options.average_last):
        raise TrainingError(f"--average-last must lie in 1..--save_total_limit, not {options.average_last}")
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
    except (ValueError, ImportError) as error:
        raise TrainingError(f"the Trainer refuses its arguments: {one_line(error)}") from error
    return arguments


def changed_arguments(arguments: TrainingArguments) -> dict[str, Any]:
    """The arguments that differ from the Trainer's own defaults, ready for JSON."""
    stock = TrainingArguments(output_dir=arguments.output_dir, use_cpu=arguments.use_cpu).to_dict()
    machine = {"output_dir", "logging_dir", "use_cpu", "dataloader_pin_memory", "log_level"}
    return {
        name: value
        for name, value in arguments.to_dict().items()
        if name not in machine and value != stock.get(name)
    }


def _check(arguments: TrainingArguments) -> None:
    """Refuse what the Trainer would accept, and then fail on, or silently train nothing."""
    # Values, not flags, are looked at: argparse takes abbreviated flags too.
    if arguments.resume_from_checkpoint is not None:
        raise TrainingError("training goes on by itself: run the same command again")
    if arguments.save_only_model:
        raise TrainingError("--save_only_model leaves nothing to go on from after an interruption")
    # Not every version of the declared range knows the newer name.
    for name in ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"):
        if getattr(arguments, name, None) not in (None, {}, {"use_reentrant": False}):
            raise TrainingError(f"--{name}: every block is recomputed, in the one way there is")
    positive: dict[str, float] = {
        "--per_device_train_batch_size": arguments.per_device_train_batch_size,
        "--gradient_accumulation_steps": arguments.gradient_accumulation_steps,
    }
    # -1 steps stand for "count epochs".
    if arguments.max_steps == -1:
        positive["--num_train_epochs"] = arguments.num_train_epochs
    else:
        positive["--max_steps"] = arguments.max_steps
    if not arguments.learning_rate >= 0:
        raise TrainingError(f"--learning_rate must not be negative, as {arguments.learning_rate} is")
    for flag, value in positive.items():
        if not value > 0:
            raise TrainingError(f"{flag} must be above 0, not {value}")


def _raise_instead_of_exit(parser: argparse.ArgumentParser) -> None:
    def error(message: str) -> NoReturn:
        raise TrainingError(message)

    parser.error = error  # type: ignore[method-assign]
