"""Trains one sub-network of a supernet on its own, and reports it with the score that it inherits."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from transformers import set_seed

from ldsearch.bench import Bench
from ldsearch.commands.console import print_fields
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.trainer import changed_arguments, fit, make_trainer, training_arguments
from ldsearch.errors import RunError
from ldsearch.fingerprint import versions, weights_fingerprint
from ldsearch.interruption import interruptible
from ldsearch.intervals import Interval
from ldsearch.runs import SUPERNET_FILE, TRAINING_FILE, claim
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import load_supernet, read_record, save_model
from ldsearch.target import Target
from ldsearch.training.checkpoints import remove_checkpoints, report_disk_full
from ldsearch.training.strategies.base import Fixed
from ldsearch.training.trainer import Distillation

STEPS = 300


@dataclass(frozen=True)
class FixedOptions:
    """How one sub-network is trained on its own.

    Args:
        steps: Optimizer steps.
        loss: ``"distill"`` from the full model of the supernet, frozen; or ``"label"``.
        label_share: Weight of the task's own loss beside ``"distill"``; None: none.
        state_weight: Factor on the distance of the first token's states beside ``"distill"``.
        seed: Of everything random.
        trainer: Fields of TrainingArguments; ``max_steps`` goes before ``steps``.
    """

    steps: int = STEPS
    loss: Literal["label", "distill"] = "distill"
    label_share: float | None = None
    state_weight: float = 0.0
    seed: int = 0
    trainer: Mapping[str, Any] = field(default_factory=dict)


def train_fixed(
    bench: Bench, folder: Path, subnet: Subnet, options: FixedOptions, chosen_on: str | None = None
) -> Path:
    """Train one sub-network, starting from the weights it inherits; a finished training is left as it is.

    The folder holds the whole model, whose ``supernet.json`` names the one sub-network that was trained.

    Args:
        bench: The supernet.
        folder: Where the model goes.
        subnet: What is trained.
        options: How.
        chosen_on: The split that chose the sub-network, for the record.

    Raises:
        LdsearchError: One line for a bad sub-network, option or folder.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint from which the same call goes on.
    """
    if options.steps < 1:
        raise RunError(f"training needs at least one step, not {options.steps}")
    bench.supernet.check(subnet)
    flags = {"max_steps": options.steps, **options.trainer}
    arguments = training_arguments(folder, flags, seed=options.seed)
    inherited = weights_fingerprint(bench.folder)
    identity = {
        "supernet": inherited,
        "subnet": subnet.to_json(),
        "loss": options.loss,
        "label_share": options.label_share,
        "state_weight": options.state_weight,
        "seed": options.seed,
        "trainer": {name: str(value) for name, value in flags.items()},
    }
    if (folder / SUPERNET_FILE).is_file():
        claim(folder, TRAINING_FILE, identity)
        return folder
    set_seed(options.seed)
    student, record, tokenizer = load_supernet(bench.folder)
    trainer = make_trainer(
        folder,
        identity,
        student,
        Fixed(subnet, options.loss),
        arguments,
        task=bench.task,
        tokenizer=tokenizer,
        reference=record.reference,
        distillation=Distillation(options.label_share, options.state_weight, record.parity),
        pad_to=record.pad_to,
        teacher=bench.supernet if options.loss == "distill" else None,
    )
    # A signal between two of the final files would leave half a model.
    with interruptible(), report_disk_full(folder):
        fit(trainer, folder)
        save_model(student.model, tokenizer, folder)
        replace(
            record,
            strategy="fixed",
            seed=options.seed,
            weights=weights_fingerprint(folder),
            metrics={},
            training={
                "model": bench.folder.name,
                "supernet": os.path.relpath(bench.folder, folder.resolve()),
                "inherited": inherited,
                "chosen_on": chosen_on,
                "loss": options.loss,
                "arguments": changed_arguments(arguments),
            },
            versions=versions(),
            subnet=json.loads(subnet.to_json()),
        ).save(folder)
    remove_checkpoints(folder / "checkpoints")
    return folder


@dataclass(frozen=True)
class Recovery:
    """A sub-network before and after a training of its own, on the same examples.

    Args:
        folder: The recovered model.
        subnet: The sub-network.
        metric: Name of the score.
        split: Where the examples come from; not the rows that chose the sub-network, where there are others.
        inherited: Its score with the supernet's weights.
        recovered: Its score after the training.
        full: The supernet's full model.
        gain: Recovered minus inherited, paired bootstrap.
        against_full: Recovered minus full, paired bootstrap.
    """

    folder: Path
    subnet: Subnet
    metric: str
    split: str
    inherited: float
    recovered: float
    full: float
    gain: Interval
    against_full: Interval


# Options of train-supernet that say how one sub-network is trained, and where its data and the result lie.
_APPLY = frozenset(
    {"model", "subnet", "data", "teacher", "label_share", "state_weight", "seed", "trainer"}
) | {
    *("name", "runs"),
}


def recover(options: TrainSupernet) -> Recovery:
    """Distil the full model into a chosen sub-network; the same call goes on after an interruption.

    Args:
        options: ``model`` is a search run, or a supernet together with ``subnet``; ``teacher="none"`` trains
            on the labels instead.

    Raises:
        LdsearchError: One line for a bad folder, sub-network or option.
        Interrupted: On SIGINT or SIGTERM.
    """
    others = [field.name for field in fields(options) if field.name not in _APPLY]
    if given := [name for name in others if getattr(options, name) != getattr(TrainSupernet(), name)]:
        raise RunError(
            f"--{given[0].replace('_', '-')} is for training a supernet; {options.model} names one "
            "sub-network to train"
        )
    if options.teacher not in ("in-place", "none"):
        raise RunError("one sub-network learns from its own full model: --teacher takes in-place or none")
    source = Path(str(options.model))
    target = Target.resolve(source, options.subnet)
    output = options.runs / (options.name or f"{source.resolve().name}-recovered")
    if output.resolve() == target.supernet.resolve():
        raise RunError(f"{output} is the supernet itself: choose another --name")
    split = target.unbiased_split(read_record(target.supernet).splits)
    data = None if options.data == TrainSupernet().data else options.data
    bench = Bench.open(target.supernet, split, data, target.runs)
    bench.require_supernet()
    how = FixedOptions(
        loss="label" if options.teacher == "none" else "distill",
        label_share=options.label_share,
        state_weight=options.state_weight,
        seed=options.seed,
        trainer=options.trainer,
    )
    with interruptible() as stop:
        trained = train_fixed(bench, output, target.subnet, how, target.chosen_on)
        stop.check()
    after = Bench.open(trained, split, None, bench.runs, bench.task).evaluator.statistics(target.subnet)
    before, full = (bench.evaluator.statistics(subnet) for subnet in (target.subnet, bench.full))
    metrics = {
        f"{split}_{bench.task.metric.name}": bench.score(after).value,
        f"{split}_{bench.task.metric.name}_inherited": bench.score(before).value,
    }
    replace(read_record(trained), metrics=metrics).save(trained)
    return Recovery(
        folder=trained,
        subnet=target.subnet,
        metric=bench.task.metric.name,
        split=split,
        inherited=bench.score(before).value,
        recovered=bench.score(after).value,
        full=bench.score(full).value,
        gain=bench.difference(after, before),
        against_full=bench.difference(after, full),
    )


def print_recovery(result: Recovery) -> dict[str, Any]:
    """The scores before and after; returns what ``--json`` prints."""
    gain, gap, folder = result.gain, result.against_full, result.folder
    print_fields(
        {
            "sub-network": result.subnet.describe(),
            "inherited": f"{result.metric} {result.inherited:.4f} on {gain.examples} {result.split} examples",
            "recovered": f"{result.recovered:.4f}, {gain.mean:+.4f} (95% interval {gain.low:+.4f} to "
            f"{gain.high:+.4f}, paired bootstrap)",
            "full model": f"{result.full:.4f}; recovered minus full {gap.mean:+.4f} (95% interval "
            f"{gap.low:+.4f} to {gap.high:+.4f})",
            "written": f"{folder}; next: ldsearch export {folder} exported/{folder.name}",
        }
    )
    return {"run": str(folder), "inherited": result.inherited, "recovered": result.recovered}
