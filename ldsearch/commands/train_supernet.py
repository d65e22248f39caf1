"""Trains a supernet and writes its folder; an interrupted training goes on where it stopped."""

import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProgressCallback,
    TrainingArguments,
    set_seed,
)

from ldsearch.commands.arguments import changed_arguments, training_arguments
from ldsearch.commands.start import initial_model, known_labels, separate_teacher
from ldsearch.commands.train_options import TrainOptions
from ldsearch.errors import RunError, TrainingError, one_line
from ldsearch.evaluation import Evaluator
from ldsearch.fingerprint import start_fingerprint, versions, weights_fingerprint
from ldsearch.interruption import interruptible
from ldsearch.runs import SUPERNET_FILE, TRAINING_FILE, claim
from ldsearch.space.assignments import warn_if_prime
from ldsearch.space.length_drop import as_rate, default_bound
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, save_model
from ldsearch.tasks import Encoded, Task, load_task, task_kind
from ldsearch.tasks.base import fingerprints_of, score
from ldsearch.training.averaging import average_last
from ldsearch.training.checkpoints import (
    StopAfterSaving,
    Writing,
    last_complete_checkpoint,
    remove_checkpoints,
)
from ldsearch.training.rates import layer_rates, mean
from ldsearch.training.strategies import Setting, StackSetting, TrainingStrategy, make_strategy
from ldsearch.training.strategies.groups import applied_rates, drops_whole_blocks, parts_of
from ldsearch.training.teaching import Distillation
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.trial import Score

_PARITY_BOUND = Fraction(1, 5)
_PLAIN_SHARE = 0.4
_DEPTHS_ALONE = "layerdrop, plain, or flexible-depth without --drop-bound"


def train_supernet(
    folder: str | Path, options: TrainOptions | None = None, note: Callable[[str], None] = lambda text: None
) -> Path:
    """Train once so that every depth and length works; returns the folder.

    The folder loads as the plain full model with stock ``transformers`` and carries ``supernet.json``.

    Args:
        folder: Where it goes.
        options: How.
        note: Called with what the user should know before it starts.

    Raises:
        LdsearchError: One line for bad data, models, options, a folder that holds another run, a full disk.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint from which the same call goes on.
    """
    folder, options = Path(folder), options or TrainOptions()
    if (folder / SUPERNET_FILE).exists():
        raise RunError(f"{folder} already holds a finished supernet: choose another --name")
    arguments = training_arguments(folder, options)
    head = task_kind(options.task).head
    labels = None if options.from_scratch else known_labels(str(options.model), head)
    set_seed(options.seed)
    task = load_task(options.task, options.source, labels)
    model, tokenizer = initial_model(options, task, has_head=labels is not None)
    usual = "column-with-pads" if options.parity else "column"
    supernet = Supernet(model, options.token_score or usual, options.memory)
    if supernet.depth_only and _trains_lengths(options):
        raise TrainingError(f"{supernet.depth_only}; train it with --strategy {_DEPTHS_ALONE}")
    teacher = separate_teacher(options, task, tokenizer)
    setting = _setting(options, supernet, has_head=labels is not None)
    strategy = make_strategy(options.strategy, setting)
    for depth in supernet.depths.values() if options.strategy == "flexible-depth" else ():
        if warning := warn_if_prime(depth):
            note(warning)
    trainer = make_trainer(
        folder,
        {
            **options.identity(),
            "splits": fingerprints_of(task),
            "start": start_fingerprint(model.state_dict(), model.config.to_dict()),
            "taught_by": None if teacher is None else start_fingerprint(teacher.model.state_dict(), {}),
        },
        supernet,
        strategy,
        arguments,
        task=task,
        tokenizer=tokenizer,
        reference=setting.reference,
        distillation=_distillation(options, supernet),
        pad_to=setting.reference if options.parity else None,
        teacher=teacher,
    )
    # Once trained, a stop waits for the end: without checkpoints there would be nothing to go on from.
    with interruptible(), Writing(folder):
        fit(trainer, folder)
        if not trainer.is_world_process_zero():
            return folder
        if options.average_last > 1:
            # Without what is tied to another weight, which follows it.
            model.load_state_dict(average_last(folder / "checkpoints", options.average_last), strict=False)
        save_model(model, tokenizer, folder)
        pad_to = setting.reference if options.parity else None
        found = _full_score(model, supernet.score, task, trainer.search, tokenizer, pad_to)
        _record(options, setting, arguments, task, supernet, trainer.search, folder, found).save(folder)
    remove_checkpoints(folder / "checkpoints")
    return folder


def make_trainer(
    folder: Path,
    identity: dict[str, Any],
    supernet: Supernet,
    strategy: TrainingStrategy,
    arguments: TrainingArguments,
    *,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    reference: int,
    distillation: Distillation,
    pad_to: int | None,
    teacher: Supernet | None = None,
) -> SupernetTrainer:
    """The trainer of a run, whose folder is made, or is this run's already.

    A separate teacher of a model with one output a row reads every row once, if training reads each at all.

    Raises:
        RunError: If the folder holds another run.
        TrainingError: If the Trainer refuses its arguments; a new folder is removed then.
    """
    train, search = (task.encode(split, tokenizer, reference) for split in ("train", "search"))
    batch = arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    epochs = (
        arguments.max_steps * batch / len(train) if arguments.max_steps > 0 else arguments.num_train_epochs
    )
    once = teacher is not None and supernet.head.pools and epochs >= 1
    fresh = claim(folder, TRAINING_FILE, identity)
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
    except (ValueError, RuntimeError, ImportError) as error:
        if fresh:
            shutil.rmtree(folder)
        raise TrainingError(f"the Trainer refuses its arguments: {one_line(error)}") from error


def fit(trainer: SupernetTrainer, folder: Path) -> None:
    """Train, or go on from the folder's last checkpoint.

    Raises:
        TrainingError: If that checkpoint holds more than tensors.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint.
    """
    checkpoint = last_complete_checkpoint(folder / "checkpoints")
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


def _full_score(
    model: PreTrainedModel,
    token_score: str,
    task: Task,
    search: Encoded,
    tokenizer: PreTrainedTokenizerBase,
    pad_to: int | None,
) -> Score:
    # A new supernet around the same weights: the trained one still computes in the Trainer's precision.
    trained = Supernet(model, token_score)
    evaluator = Evaluator(
        trained,
        task,
        search,
        split="search",
        tokenizer=tokenizer,
        costs=(trained.macs(search.workload),),
        fingerprint="",
        pad_to=pad_to,
    )
    return score(task.metric, evaluator.statistics(trained.full))


def _setting(options: TrainOptions, supernet: Supernet, has_head: bool) -> Setting:
    longest = supernet.longest
    if not 2 <= options.tokens <= longest:
        raise TrainingError(f"--max-length must lie in 2..{longest} for this model, not {options.tokens}")
    bound = _PARITY_BOUND if options.parity else default_bound(supernet.blocks)
    if options.drop_bound is not None:
        bound = as_rate(options.drop_bound)
    plain_share = options.plain_share
    if plain_share is None:
        plain_share = 0.0 if has_head else _PLAIN_SHARE
    if options.sandwich == "taught" and options.teacher in ("in-place", "none"):
        raise TrainingError(
            "--sandwich taught needs --teacher FOLDER: the full pass sees too little to teach"
        )
    if options.drop_groups != "layer" and options.strategy != "layerdrop":
        raise TrainingError(f"--drop-groups is for --strategy layerdrop, not {options.strategy}")
    if options.drop_groups != "layer" and (supernet.depth_only or "decoder" in supernet.stacks):
        raise TrainingError(supernet.depth_only or "a decoder works depth-only: drop layers")
    return Setting(
        stacks={name: _stack_setting(options, supernet, name) for name in supernet.stacks},
        reference=options.tokens,
        drop_bound=bound,
        length_mode="absolute" if options.parity else "ratio",
        distil=options.teacher != "none",
        sandwich="paper" if options.parity else options.sandwich,
        plain_share=plain_share,
        parity=options.parity,
        drop_groups=options.drop_groups,
        depth_tasks=replace(options.depth_tasks, lengths=_trains_lengths(options)),
    )


def _distillation(options: TrainOptions, supernet: Supernet) -> Distillation:
    """The loss of what learns from a teacher.

    Raises:
        TrainingError: If a number makes no sense, or the training has no teacher or no first token to match.
    """
    share, weight = options.label_share, options.state_weight
    if share is None and not weight:
        return Distillation(reverse_kl=options.parity)
    if options.strategy != "lengthdrop" or options.teacher == "none":
        raise TrainingError("--label-share and --state-weight are for --strategy lengthdrop with a teacher")
    if share is not None and not 0 <= share <= 1:
        raise TrainingError(f"--label-share must lie in 0..1, not {share}")
    if not weight >= 0:
        raise TrainingError(f"--state-weight must not be negative, as {weight} is")
    if weight and not supernet.reads_first:
        raise TrainingError("--state-weight is for heads that read the first token only")
    return Distillation(share, weight, options.parity)


def _trains_lengths(options: TrainOptions) -> bool:
    if options.strategy == "flexible-depth":
        return options.drop_bound is not None or options.depth_tasks.lengths
    return options.strategy == "lengthdrop"


def _stack_setting(options: TrainOptions, supernet: Supernet, name: str) -> StackSetting:
    depth = supernet.depths[name]
    finer = name == "encoder" and not supernet.depth_only
    return StackSetting(
        depth,
        layer_rates(depth, options.layer_drop, options.layer_drop_schedule, options.target_layers),
        pinned=supernet.pinned if name == "encoder" else (),
        min_layers=options.min_layers,
        heads=supernet.shape.heads if finer else 0,
    )


def _record(
    options: TrainOptions,
    setting: Setting,
    arguments: TrainingArguments,
    task: Task,
    supernet: Supernet,
    search: Encoded,
    folder: Path,
    found: Score,
) -> SupernetRecord:
    trains_lengths = _trains_lengths(options)
    drops = options.strategy in ("layerdrop", "lengthdrop")
    applied = [applied_rates(stack, setting.drop_groups) for stack in setting.stacks.values()]
    rates = [rate for stack in applied for rate in stack] if drops else []
    return SupernetRecord(
        strategy=options.strategy,
        seed=options.seed,
        blocks=supernet.blocks,
        depths=dict(supernet.depths),
        memory=supernet.memory,
        reference=setting.reference,
        drop_bound=str(setting.drop_bound) if trains_lengths else None,
        layer_drop=mean(rates) if rates and drops_whole_blocks(parts_of(setting.drop_groups)) else 0.0,
        layer_rates=rates,
        length_mode=setting.length_mode,
        score=supernet.score,
        parity=options.parity,
        source=dict(task.source),
        labels=list(task.labels),
        splits={
            name: {"examples": len(examples), "fingerprint": examples.fingerprint}
            for name, examples in task.splits.items()
        },
        workload=search.workload.to_dict(),
        weights=weights_fingerprint(folder),
        metrics={f"search_{task.metric.name}": found.value},
        training={
            "model": options.model,
            "plain_share": setting.plain_share if trains_lengths else None,
            "drop_groups": setting.drop_groups if rates else None,
            "min_layers": options.min_layers if rates else None,
            "depth_tasks": asdict(setting.depth_tasks) if options.strategy == "flexible-depth" else None,
            "arguments": changed_arguments(arguments),
        },
        versions=versions(),
        overlap=task.overlap,
    )
