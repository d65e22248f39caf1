"""The Trainer of a run: its arguments (our defaults, the user's flags), and how it goes on."""

import argparse
import contextlib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, NoReturn, cast

import torch
from filelock import FileLock, Timeout
from transformers import (
    HfArgumentParser,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    get_scheduler,
)

from ldsearch.disk.files import report_disk_full
from ldsearch.disk.fingerprint import weights_fingerprint
from ldsearch.disk.hub import HTTP_ERROR, refused
from ldsearch.errors import RunError, TrainingError, one_line
from ldsearch.evaluation import Evaluator
from ldsearch.options.binding import trainer_words
from ldsearch.runs.folder import claim
from ldsearch.runs.run import SUPERNET_FILE, TRAINING_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, save_model
from ldsearch.supernet.processor import bf16_is_fast
from ldsearch.supernet.refusals import REFUSALS, require_finite
from ldsearch.tasks import Task
from ldsearch.tasks.base import score
from ldsearch.training.checkpoints import (
    StopAfterSaving,
    average_last,
    last_complete_checkpoint,
    load_weights,
    remove_checkpoints,
)
from ldsearch.training.distillation import Distillation
from ldsearch.training.flags import instead_of
from ldsearch.training.strategies import Plan
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.trials.trial import Score
from ldsearch.work.interruption import interruptible
from ldsearch.work.progress import NO_PROGRESS, Progress

EPOCHS = 3
RATE = 5e-5  # of a pretrained model as wide as BERT-base


def training_arguments(
    folder: Path,
    flags: Mapping[str, Any],
    *,
    seed: int,
    rate: float = RATE,
    average_last: int = 1,
    epochs: float = EPOCHS,
    may_rest: bool = False,
) -> TrainingArguments:
    """The defaults of this package, overridden by the user's flags as the Trainer's command line reads them.

    A processor trains in bf16 by default where it multiplies faster in it.

    Args:
        folder: The run's; checkpoints go below it.
        flags: Fields of TrainingArguments, as text or as values; True: a flag without a value.
        seed: Of the Trainer.
        rate: Peak learning rate, where it is not among the flags.
        average_last: So many checkpoints are kept.
        epochs: Where neither these nor steps are among the flags.
        may_rest: Whether ``max_steps`` may be 0, since something is fitted without any.

    Raises:
        TrainingError: If a flag is unknown or its value makes no sense.
    """
    accelerated = torch.accelerator.is_available()
    defaults = {
        "output_dir": folder / "checkpoints",
        "num_train_epochs": epochs,
        "per_device_train_batch_size": 32,
        "learning_rate": rate,
        "warmup_steps": 0.1,
        "save_strategy": "epoch",
        "save_total_limit": average_last,
        "logging_steps": 100,
        "log_level": "warning",
        "report_to": "none",
        "use_cpu": not accelerated,
        "bf16": not accelerated and "fp16" not in flags and bf16_is_fast(),
        "dataloader_pin_memory": accelerated,
        "remove_unused_columns": False,
        "seed": seed,
    }
    parser = HfArgumentParser(cast(Any, TrainingArguments))
    _raise_instead_of_exit(parser)
    words = [text for name, value in defaults.items() for text in (f"--{name}", str(value))]
    try:
        arguments, unknown = parser.parse_args_into_dataclasses(
            args=[*words, *trainer_words(flags)], return_remaining_strings=True, look_for_args_file=False
        )
    except REFUSALS as error:
        raise TrainingError(f"the Trainer refuses its arguments: {one_line(error)}") from error
    if unknown:
        told = [f"; {other}" for flag in unknown if (other := instead_of(flag.partition("=")[0]))]
        raise TrainingError(f"neither ldsearch nor the Trainer knows {' '.join(unknown)}{''.join(told)}")
    assert isinstance(arguments, TrainingArguments)
    if {"max_steps", "num_train_epochs"} <= flags.keys():
        raise TrainingError("--max_steps and --num_train_epochs say different things: give one of them")
    if Path(str(arguments.output_dir)) != folder / "checkpoints":
        raise TrainingError("--output_dir is the run's own folder: choose it with --name and --runs")
    _check(arguments, may_rest)
    if not 1 <= average_last <= (arguments.save_total_limit or average_last):
        raise TrainingError(f"--average-last must lie in 1..--save_total_limit, not {average_last}")
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
        # A schedule is made when training begins; some need arguments of their own.
        optimizer = torch.optim.SGD([torch.zeros(1)])
        kwargs = cast(dict[str, Any], arguments.lr_scheduler_kwargs)
        get_scheduler(arguments.lr_scheduler_type, optimizer, 0, 1, scheduler_specific_kwargs=kwargs)
    except REFUSALS as error:
        raise TrainingError(f"the Trainer refuses its arguments: {one_line(error)}") from error
    return arguments


_LARGE = float(2**31 - 1)
# Least and largest of what the Trainer takes as it comes; NaN lies in no range.
_RANGES: Mapping[str, tuple[float, float]] = {
    "learning_rate": (0, 1e6),
    "weight_decay": (0, 1e6),
    "adam_beta1": (0, 1 - 1e-12),
    "adam_beta2": (0, 1 - 1e-12),
    "adam_epsilon": (0, 1),
    "max_grad_norm": (0, 1e12),
    "warmup_steps": (0, _LARGE),
    "seed": (0, 2**32 - 1),
    "data_seed": (0, 2**32 - 1),
    "max_steps": (-1, _LARGE),
    "num_train_epochs": (0, _LARGE),
    "per_device_train_batch_size": (1, 2**20),
    "per_device_eval_batch_size": (1, 2**20),
    "gradient_accumulation_steps": (1, 2**20),
    "dataloader_num_workers": (0, 1024),
    "save_steps": (0, _LARGE),
    "logging_steps": (0, _LARGE),
    "eval_steps": (0, _LARGE),
    "eval_delay": (0, _LARGE),
    "save_total_limit": (1, _LARGE),
    "torch_empty_cache_steps": (1, _LARGE),
}
# What has no effect, or breaks the training.
_UNUSED = MappingProxyType(
    {
        "fsdp": "it shards a model that runs as a whole; the strategies run its blocks themselves",
        "torch_compile": "every sub-network would be compiled anew",
        "use_liger_kernel": "the strategies run the blocks themselves",
        "neftune_noise_alpha": "the strategies run the blocks themselves, without noise",
        "label_smoothing_factor": "each sub-network has its strategy's own loss",
        "remove_unused_columns": "features hold what the model reads, and nothing else",
    }
)


def changed_arguments(arguments: TrainingArguments) -> dict[str, Any]:
    """The arguments that differ from the Trainer's own defaults, ready for JSON."""
    stock = TrainingArguments(output_dir=arguments.output_dir, use_cpu=arguments.use_cpu).to_dict()
    machine = {"output_dir", "logging_dir", "use_cpu", "dataloader_pin_memory", "log_level"}
    return {
        name: value
        for name, value in arguments.to_dict().items()
        if name not in machine and value != stock.get(name)
    }


def _check(arguments: TrainingArguments, may_rest: bool) -> None:
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
    if arguments.n_gpu > 1:
        raise TrainingError(
            f"{arguments.n_gpu} GPUs in one process are not supported: start one process a GPU with torchrun "
            "--nproc_per_node, or hide the others with CUDA_VISIBLE_DEVICES=0"
        )
    _check_values(arguments, may_rest)


def _check_values(arguments: TrainingArguments, may_rest: bool) -> None:
    # -1 steps stand for "count epochs".
    counted = "num_train_epochs" if arguments.max_steps == -1 else "max_steps"
    if not getattr(arguments, counted) > 0 and not (may_rest and arguments.max_steps == 0):
        raise TrainingError(f"--{counted} must be above 0, not {getattr(arguments, counted)}")
    for name, (least, most) in _RANGES.items():
        value = getattr(arguments, name, None)
        if value is not None and not least <= value <= most:
            raise TrainingError(f"--{name} must lie in {least:g}..{most:g}, not {value}")
    for name, why in _UNUSED.items():
        if getattr(arguments, name, None):
            raise TrainingError(f"--{name}: {why}")
    if arguments.dataloader_persistent_workers and not arguments.dataloader_num_workers:
        raise TrainingError("--dataloader_persistent_workers is for --dataloader_num_workers above 0")


def _raise_instead_of_exit(parser: argparse.ArgumentParser) -> None:
    def error(message: str) -> NoReturn:
        raise TrainingError(message)

    parser.error = error  # type: ignore[method-assign]


def make_trainer(
    folder: Path,
    identity: dict[str, Any],
    supernet: Supernet,
    strategy: Plan,
    arguments: TrainingArguments,
    *,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    reference: int,
    distillation: Distillation,
    pad_to: int | None,
    teacher: Supernet | None = None,
    options: Mapping[str, Any] | None = None,
    averaged: int = 1,
) -> SupernetTrainer:
    """The trainer of a run, whose folder is made, or is this run's already.

    A separate teacher of a model with one output a row reads every row once, if training reads each at all.

    Raises:
        RunError: If the folder holds another run.
        TrainingError: If the Trainer refuses its arguments; a new folder is removed then.
    """
    train, search = (task.encode(split, tokenizer, reference) for split in ("train", "search"))
    steps, epochs = length_of(arguments, len(train))
    if averaged > (saved := checkpoints_of(arguments, steps, math.ceil(epochs))):
        raise TrainingError(f"--average-last {averaged}: this training saves {saved} checkpoints")
    best = arguments.metric_for_best_model if arguments.load_best_model_at_end else None
    if best is not None and best.removeprefix("eval_") not in ("loss", task.metric.name):
        raise TrainingError(f"--metric_for_best_model is loss or {task.metric.name}, not {best}")
    once = teacher is not None and supernet.head.pools and epochs >= 1
    fresh = claim(folder, TRAINING_FILE, identity, options)
    try:
        return SupernetTrainer(
            supernet,
            strategy,
            arguments,
            task=task,
            train=train,
            search=search,
            tokenizer=tokenizer,
            distillation=distillation,
            pad_to=pad_to,
            teacher=teacher,
            taught=train if once else None,
        )
    except (*REFUSALS, HTTP_ERROR) as error:
        if fresh:
            shutil.rmtree(folder)
        raise refused("the Trainer refuses its arguments", error, TrainingError) from error


def length_of(arguments: TrainingArguments, rows: int) -> tuple[int, float]:
    """Optimizer steps of a training on so many rows, and its epochs."""
    batch = arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    if arguments.max_steps >= 0:
        return arguments.max_steps, arguments.max_steps * batch / rows
    epochs = arguments.num_train_epochs
    return max(1, math.ceil(epochs * math.ceil(rows / batch))), epochs


def checkpoints_of(arguments: TrainingArguments, steps: int, epochs: int) -> int:
    """The most checkpoints that a training saves."""
    if arguments.save_strategy == "no":
        return 1
    if arguments.save_strategy == "steps":
        # Below 1 it is a share of the training.
        every = arguments.save_steps if arguments.save_steps >= 1 else math.ceil(arguments.save_steps * steps)
        return math.ceil(steps / max(1, every))
    return max(1, epochs)


def search_score(trainer: SupernetTrainer, net: Supernet, subnet: Subnet, pad_to: int | None) -> Score:
    """Score on the trainer's search rows, in fp32 whatever it trains in."""
    # A new supernet around the same weights: a trained one still computes in the Trainer's precision.
    again = Supernet(net.model, net.score, net.memory, net.skipped)
    tokenizer, task = cast(PreTrainedTokenizerBase, trainer.processing_class), trainer.task
    evaluator = Evaluator(again, task, trainer.search, tokenizer=tokenizer, pad_to=pad_to)
    return score(task.metric, evaluator.statistics(subnet))


def run_training(
    trainer: SupernetTrainer,
    folder: Path,
    record: Callable[[str], SupernetRecord],
    averaged: int = 1,
    progress: Progress = NO_PROGRESS,
    *,
    fits: bool = False,
) -> Path:
    """Train, or go on from the last checkpoint; write the model and its record; return the folder.

    Args:
        trainer: Of ``make_trainer``.
        folder: The run's; its checkpoints are removed at the end.
        record: Describes the trained model, given the fingerprint of its weights.
        averaged: The model is the mean of so many last checkpoints.
        progress: Receives phases and steps, instead of the Trainer's own bar.
        fits: Whether the learned token score is fitted again at the end: training moved the states that it
            reads.

    Raises:
        RunError: If the disk is full.
        TrainingError: If a checkpoint cannot be read.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint.
    """
    model, tokenizer = trainer.supernet.model, cast(PreTrainedTokenizerBase, trainer.processing_class)
    # Once trained, a stop waits for the end: between two of the final files it would leave half a model, and
    # without checkpoints nothing to go on from.
    with interruptible(), report_disk_full(folder), alone(folder, trainer.is_world_process_zero()):
        if trainer.args.max_steps != 0:
            fit(trainer, folder, progress)
        if not trainer.is_world_process_zero():
            return folder
        if averaged > 1:
            load_weights(model, average_last(folder / "checkpoints", averaged))
        if fits:
            progress.phase("fitting the token score", None)
            trainer.fit_saliency()
        progress.phase("saving the model", None)
        require_finite(model, str(folder), ": the training diverged; take a lower --learning_rate")
        save_model(model, tokenizer, folder)
        record(weights_fingerprint(folder)).save(folder)
    remove_checkpoints(folder / "checkpoints")
    return folder


@contextlib.contextmanager
def alone(folder: Path, leads: bool) -> Iterator[None]:
    """Hold a run's folder for one training: two would remove each other's checkpoints.

    Args:
        folder: The run's.
        leads: Whether this is the one process of a training that writes.

    Raises:
        RunError: If another process is training there, or has finished meanwhile.
    """
    if not leads:
        yield
        return
    lock = FileLock(folder / f".{TRAINING_FILE}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"another process is training in {folder}: wait, or choose another --name") from None
    try:
        if (folder / SUPERNET_FILE).exists():
            raise RunError(f"{folder} already holds a finished supernet: choose another --name")
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


class _Told(TrainerCallback):
    """Tells a training's steps."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Begin the phase; of a training that goes on, what is left of it."""
        after = f" after step {state.global_step}" if state.global_step else ""
        self.progress.phase(f"training{after}", state.max_steps - state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """One step further."""
        self.progress.step()


def fit(trainer: SupernetTrainer, folder: Path, progress: Progress = NO_PROGRESS) -> None:
    """Train, or go on from the folder's last checkpoint.

    Raises:
        TrainingError: If that checkpoint holds more than tensors.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint.
    """
    checkpoint = last_complete_checkpoint(folder / "checkpoints")
    if progress is not NO_PROGRESS and trainer.is_world_process_zero():
        if trainer.pop_callback(ProgressCallback) is not None:
            trainer.add_callback(PrinterCallback())
        trainer.add_callback(_Told(progress))
    try:
        with interruptible() as stop:
            trainer.add_callback(StopAfterSaving(stop))
            trainer.train(resume_from_checkpoint=checkpoint)
    except UnpicklingError as error:
        # The Trainer unpickles with weights_only.
        raise TrainingError(
            f"{checkpoint} holds more than tensors and is not read: move it away and start again"
        ) from error
    finally:
        # Where training broke off, its progress bar would share a line with what is said next.
        bar = getattr(trainer.pop_callback(ProgressCallback), "training_bar", None)
        if bar is not None:
            bar.close()
