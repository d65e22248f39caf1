"""Trains a supernet and writes its folder; an interrupted training goes on where it stopped."""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, cast

from transformers import set_seed

from ldsearch.disk.fingerprint import start_fingerprint, versions
from ldsearch.disk.secrets import without_tokens
from ldsearch.errors import RunError, TrainingError
from ldsearch.options import TrainSupernet
from ldsearch.options.binding import changed, trainer_words
from ldsearch.runs.run import SUPERNET_FILE
from ldsearch.space import Space
from ldsearch.space.assignments import warn_if_prime
from ldsearch.subnet import LengthMode, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord
from ldsearch.supernet.heads import Memory
from ldsearch.supernet.processor import bf16_gain
from ldsearch.supernet.saliency import LEARNED, without_weights
from ldsearch.supernet.supernet import Skipped
from ldsearch.tasks import DataSource, TextClassification, load_task, task_kind
from ldsearch.tasks.base import fingerprints_of
from ldsearch.tasks.splits import SearchRows
from ldsearch.tasks.tables import Columns
from ldsearch.training.applicable import check_training, in_force
from ldsearch.training.distillation import distillation_of, without_dropout
from ldsearch.training.drop_rates import mean_rate
from ldsearch.training.estimate import training_minutes
from ldsearch.training.run import (
    EPOCHS,
    changed_arguments,
    length_of,
    make_trainer,
    run_training,
    search_score,
    training_arguments,
)
from ldsearch.training.start import (
    initial_model,
    known_labels,
    named_labels,
    peak_rate,
    pin_query,
    separate_teacher,
    task_of,
)
from ldsearch.training.strategies import Plan, Setting, make_strategy
from ldsearch.training.strategies.base import Fixed
from ldsearch.training.strategies.flexible_depth import DEPTH_TASKS
from ldsearch.training.strategies.layerdrop import applied_rates, drops_whole_blocks, parts_of
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.progress import NO_PROGRESS, Progress

_ESTIMATED = 1_000  # steps whose minutes tell those of one
# Share of a training that the full model of a new head has for itself.
_PLAIN_SHARE = 0.4
# Options that a strategy reads as they are: those that a setting has too, but for those whose default is the
# model's, and one that --parity presets.
_OF_STRATEGY = {field.name for field in fields(Setting)} & {field.name for field in fields(TrainSupernet)} - {
    *("drop_bound", "plain_share", "length_mode"),
}
# Options that make no other training: where it goes, a preset, and names of data, whose fingerprints count.
_NOT_IDENTITY = frozenset({"name", "runs", "parity", "subnet", "trainer"}) | {
    *("data", "config", "validation", "text_column", "pair_column", "label_column", "keep_overlap"),
    *("search_rows", "labels", "pin_query"),  # which the starting configuration has
}


def train_supernet(
    folder: str | Path,
    options: TrainSupernet | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Progress = NO_PROGRESS,
    *,
    scored: bool = True,
    at: Subnet | None = None,
) -> Path:
    """Train once so that every depth and length works; returns the folder.

    The folder loads as the plain full model with stock ``transformers`` and carries ``supernet.json``.

    Args:
        folder: Where it goes.
        options: How.
        note: Called with what the user should know before it starts.
        progress: Receives phases and steps, instead of the Trainer's own bar.
        scored: Whether the full model's score on the search rows is recorded.
        at: The one sub-network that is trained, by the teacher, without dropout (results/embeddings/budget).

    Raises:
        LdsearchError: One line for bad data, models, options, a folder that holds another run, a full disk.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint from which the same call goes on.
    """
    folder, options = Path(folder), options or TrainSupernet()
    trainer, setting, space = _trainer(folder, options, note, at)
    for text in outlook(trainer):
        note(text)
    return run_training(
        trainer,
        folder,
        lambda weights: _record(
            options, setting.now, trainer, weights, space, progress if scored else None, at
        ),
        options.average_last,
        progress,
        fits=trainer.supernet.score == LEARNED and at is None,  # one sub-network has learned by its score
    )


def steps_within(options: TrainSupernet, minutes: float, at: Subnet | None = None) -> int:
    """How many optimizer steps of a training take so many minutes here, at least one.

    Args:
        options: Of the training; it is not run.
        minutes: In all, but for evaluations and checkpoints.
        at: The one sub-network that is trained, if it is one.

    Raises:
        LdsearchError: As ``train_supernet``.
    """
    with tempfile.TemporaryDirectory() as place:
        often = replace(options, average_last=1, trainer={**options.trainer, "max_steps": str(_ESTIMATED)})
        trainer, *_ = _trainer(Path(place) / "estimated", often, lambda text: None, at)
        estimated, _ = training_minutes(trainer, _ESTIMATED)
    return max(1, int(_ESTIMATED * minutes / estimated))


def _trainer(
    folder: Path, options: TrainSupernet, note: Callable[[str], None], at: Subnet | None
) -> tuple[SupernetTrainer, Setting, dict[str, Any]]:
    """The trainer of a folder that is this training's, its setting, and the space that it trains."""
    given = changed(options)
    kind = options.task or task_of(options.model, data_source(options))
    if options.task is None and kind != TextClassification.kind:
        note(f"--task {kind}, which the model is fine-tuned for")
    options = replace(options, task=kind)
    check_training(options)
    if (folder / SUPERNET_FILE).exists():
        raise RunError(f"{folder} already holds a finished supernet: choose another --name")
    head = task_kind(kind).head
    learns = in_force(options, "token_score") and options.token_score in (None, LEARNED)
    known = None if options.from_scratch else known_labels(str(options.model), head)
    plain_share = _plain_share(options, has_head=known is not None)
    arguments = training_arguments(
        folder,
        options.trainer,
        seed=options.seed,
        rate=peak_rate(options, alone=at is not None),
        average_last=options.average_last,
        # A pretrained encoder has its epochs after what its new head takes alone.
        epochs=EPOCHS if options.from_scratch else round(EPOCHS / (1 - plain_share), 6),
        may_rest=known is not None and learns,
    )
    set_seed(options.seed)
    task = load_task(kind, data_source(options), named_labels(known, options.labels))
    model, tokenizer = initial_model(options, task, has_head=known is not None)
    task.check_model(model.config)
    if options.pin_query:
        pin_query(model.config, task, tokenizer)
    if not learns:
        without_weights(model)
    if options.skipped != "identity" and "sublayer" not in options.drop_groups.split("+"):
        raise TrainingError("--skipped is for --drop-groups with sublayer: nothing else drops sub-layers")
    how = cast(Memory, options.memory), cast(Skipped, options.skipped)
    supernet = Supernet(model, options.token_score, *how, options.attention_dropout)
    if options.attention_dropout and supernet.family is None:
        raise TrainingError(f"--attention-dropout is for encoders: {supernet.why_depth_only}")
    setting = _setting(options, supernet, plain_share)
    teacher = separate_teacher(options, task, supernet, tokenizer)
    strategy = make_strategy(options.strategy, setting)
    plan: Plan = strategy if at is None else _alone(at, strategy.space, supernet, teacher)
    for depth in supernet.depths.values() if in_force(options, "assignment") else ():
        if warning := warn_if_prime(depth):
            note(warning)
    trainer = make_trainer(
        folder,
        {
            **{name: value for name, value in asdict(options).items() if name not in _NOT_IDENTITY},
            "trainer": trainer_words(without_tokens(options.trainer)),
            "bf16": arguments.bf16,
            "splits": fingerprints_of(task),
            "start": start_fingerprint(model.state_dict(), model.config.to_dict()),
            "taught_by": None if teacher is None else start_fingerprint(teacher.model.state_dict(), {}),
            **({} if at is None else {"at": at.to_json()}),
        },
        supernet,
        plan,
        arguments,
        task=task,
        tokenizer=tokenizer,
        reference=setting.reference,
        distillation=distillation_of(options, supernet, reverse_kl=options.reverse_kl),
        pad_to=setting.reference if options.pad_inputs else None,
        teacher=teacher,
        options=given,
        averaged=options.average_last,
    )
    return trainer, setting, strategy.space.to_dict()


def _alone(at: Subnet, space: Space, supernet: Supernet, teacher: Supernet | None) -> Fixed:
    """The plan that trains one sub-network by a separate teacher, without dropout.

    It starts with the teacher's weights or near them, and dropout adds more to the loss than there is to
    learn (results/reranker/epyc-avx512).

    Raises:
        TrainingError: If there is no such teacher.
    """
    if teacher is None:
        raise TrainingError("one sub-network learns from a separate teacher: name its folder")
    without_dropout(supernet.model)
    return Fixed(at, "distill", space)


def outlook(trainer: SupernetTrainer) -> Iterator[str]:
    """Notes before a training: how its data were read, its precision, and how long it takes."""
    args = trainer.args
    if trainer.task.note:
        yield trainer.task.note
    steps, _ = length_of(args, len(trainer.train_rows))
    if not steps:
        return
    gain = bf16_gain() if args.bf16 and args.use_cpu else 1.0
    if gain < 1:
        slower = f"{1 / gain:.1f} times as long in bf16 as in fp32"
        yield f"this processor's matrix products take {slower}: train with --bf16 False"
    elif gain > 1:
        yield f"in bf16, whose matrix products are {gain:.1f} times as fast as fp32's here (--bf16 False)"
    minutes, work = training_minutes(trainer, steps)
    if minutes >= 1:
        each = f"each is the work of {work:.1f} steps of plain fine-tuning"
        shown = f"{minutes:.1f}" if minutes < 10 else f"{minutes:.0f}"
        yield f"{steps:,} steps take about {shown} minutes here; {each}"


def data_source(options: TrainSupernet) -> DataSource:
    """The data that the options name."""
    return DataSource(
        options.data,
        config=options.config,
        validation=options.validation,
        columns=Columns(options.text_column, options.pair_column, options.label_column),
        keep_overlap=options.keep_overlap,
        search_rows=cast(SearchRows, options.search_rows),
        metric=options.metric,
        stride=options.stride,
        sentences=options.sentences,
    )


def _plain_share(options: TrainSupernet, has_head: bool) -> float:
    """Share of the training that the full model has for itself.

    Raises:
        TrainingError: If it is no share.
    """
    if options.plain_share is not None and not 0 <= options.plain_share < 1:
        raise TrainingError(f"the plain share must lie in [0, 1), not {options.plain_share}")
    if not in_force(options, "plain_share"):
        return 0.0
    default = 0.0 if has_head else _PLAIN_SHARE
    return default if options.plain_share is None else options.plain_share


def _setting(options: TrainSupernet, supernet: Supernet, plain_share: float) -> Setting:
    if in_force(options, "drop_bound") and not supernet.supports_lengths:
        alone = "lengthdrop --genes depth, layerdrop, plain, or flexible-depth without --drop-bound"
        raise TrainingError(f"{supernet.why_depth_only}; train it with --strategy {alone}")
    longest = supernet.longest
    if not 2 <= options.tokens <= longest:
        raise TrainingError(f"--max-length must lie in 2..{longest} for this model, not {options.tokens}")
    if options.sandwich == "taught" and options.teacher in ("in-place", "none"):
        raise TrainingError(
            "--sandwich taught needs --teacher FOLDER: the full pass sees too little to teach"
        )
    if options.memory != "restored" and supernet.reads_first and "decoder" not in supernet.stacks:
        raise TrainingError("--memory is for decoders and for heads that read every token")
    if options.drop_groups != "layer" and supernet.why_no_groups:
        raise TrainingError(f"{supernet.why_no_groups}: drop layers")
    how = options.strategy, options.drop_groups
    if options.layer_drop_schedule == "learned" and how != ("layerdrop", "layer"):
        raise TrainingError("--layer-drop-schedule learned is for --strategy layerdrop that drops layers")
    setting = Setting.of(
        supernet,
        options.tokens,
        options.drop_bound,
        options.layer_drop,
        options.layer_drop_schedule,
        options.target_layers,
        options.min_layers,
        options.seed,
    )
    return replace(
        setting,
        distil=options.teacher != "none",
        plain_share=plain_share,
        length_mode=cast(LengthMode, options.length_mode or "ratio"),
        depth_lengths=in_force(options, "drop_bound"),
        **{name: getattr(options, name) for name in _OF_STRATEGY},
    )


def _record(
    options: TrainSupernet,
    setting: Setting,
    trainer: SupernetTrainer,
    weights: str,
    space: dict[str, Any],
    scoring: Progress | None,
    at: Subnet | None,
) -> SupernetRecord:
    task, supernet, search = trainer.task, trainer.supernet, trainer.search
    lengths = in_force(options, "drop_bound")
    applied = [applied_rates(stack, setting.drop_groups) for stack in setting.stacks.values()]
    rates = [rate for stack in applied for rate in stack] if in_force(options, "layer_drop") else []
    metrics = {}
    if scoring is not None:
        scoring.phase("scoring the trained model", None)
        pad_to = setting.reference if options.pad_inputs else None
        metrics[f"search_{task.metric.name}"] = search_score(trainer, supernet, supernet.full, pad_to).value
    return SupernetRecord(
        strategy=options.strategy,
        seed=options.seed,
        blocks=supernet.blocks,
        depths=dict(supernet.depths),
        memory=supernet.memory,
        reference=setting.reference,
        drop_bound=str(setting.drop_bound) if lengths else None,
        layer_drop=mean_rate(rates) if rates and drops_whole_blocks(parts_of(setting.drop_groups)) else 0.0,
        layer_rates=rates,
        length_mode=setting.length_mode,
        score=supernet.score,
        parity=options.pad_inputs,
        source=dict(task.source),
        labels=list(task.labels),
        splits={
            name: {"examples": len(examples), "fingerprint": examples.fingerprint}
            for name, examples in task.splits.items()
        },
        workload=search.workload.to_dict(),
        weights=weights,
        metrics=metrics,
        training={
            "model": options.model,
            "plain_share": setting.plain_share if in_force(options, "plain_share") else None,
            "drop_groups": setting.drop_groups if rates else None,
            "min_layers": options.min_layers if rates else None,
            "layer_drop_schedule": options.layer_drop_schedule if rates else None,
            "depth_tasks": {
                **{name: getattr(setting, name) for name in DEPTH_TASKS},
                "lengths": lengths,
            }
            if in_force(options, "assignment")
            else None,
            "clipped_share": trainer.clipped_share,
            "arguments": changed_arguments(trainer.args),
            **({} if at is None else {"at": json.loads(at.to_json())}),
        },
        versions=versions(),
        overlap=task.overlap,
        space=space,
        skipped=supernet.skipped,
    )
