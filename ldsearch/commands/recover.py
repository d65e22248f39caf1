"""Trains one sub-network of a supernet on its own, and reports it with the score that it inherits."""

import json
import os
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import set_seed

from ldsearch.bench import Bench
from ldsearch.commands.console import print_fields
from ldsearch.commands.options import TrainSupernet
from ldsearch.commands.trainer import (
    changed_arguments,
    make_trainer,
    run_training,
    search_score,
    training_arguments,
)
from ldsearch.errors import RunError, one_line
from ldsearch.fingerprint import versions, weights_fingerprint
from ldsearch.interruption import interruptible
from ldsearch.progress import NO_PROGRESS, Progress
from ldsearch.run_folder import claim
from ldsearch.runs import SUPERNET_FILE, TRAINING_FILE
from ldsearch.secrets import without_tokens
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import SupernetRecord, load_model, load_supernet, read_record, save_model
from ldsearch.supernet.saliency import score_weights, stock_weights
from ldsearch.target import Target
from ldsearch.training.strategies.base import Fixed
from ldsearch.training.trainer import Distillation

STEPS = 300
# Options of train-supernet that one sub-network is trained by.
_APPLY = frozenset({"label_share", "state_weight", "seed", "trainer", "teacher"}) | {
    *("model", "subnet", "data", "name", "runs"),
}


def train_fixed(
    bench: Bench,
    folder: Path,
    subnet: Subnet,
    options: TrainSupernet,
    chosen_on: str | None = None,
    start: Path | None = None,
    keep_better: bool = False,
    progress: Progress = NO_PROGRESS,
) -> Path:
    """Train one sub-network, starting from the weights it inherits; a finished training is left as it is.

    The folder holds the whole model, whose ``supernet.json`` names the one sub-network that was trained.

    Args:
        bench: The supernet.
        folder: Where the model goes.
        subnet: What is trained.
        options: ``label_share``, ``state_weight``, ``seed`` and ``trainer`` (300 steps unless it has
            ``max_steps``) are read; ``teacher="none"`` trains on the labels, anything else distils from the
            supernet's full model, frozen.
        chosen_on: The split that chose the sub-network, for the record.
        start: Folder of a model of the same shapes whose weights it starts from instead.
        keep_better: Keep the inherited weights where training lowered the score on the search rows.
        progress: Receives phases and steps, instead of the Trainer's own bar.

    Raises:
        LdsearchError: One line for a bad sub-network, option or folder.
        Interrupted: On SIGINT or SIGTERM, after a checkpoint from which the same call goes on.
    """
    bench.supernet.check(subnet)
    # Steps, unless epochs are asked for.
    flags = {**({} if "num_train_epochs" in options.trainer else {"max_steps": STEPS}), **options.trainer}
    arguments = training_arguments(folder, flags, seed=options.seed)
    loss: Literal["label", "distill"] = "label" if options.teacher == "none" else "distill"
    inherited = weights_fingerprint(start or bench.folder)
    identity = {
        "supernet": inherited,
        "subnet": subnet.to_json(),
        "loss": loss,
        "label_share": options.label_share,
        "state_weight": options.state_weight,
        "seed": options.seed,
        "trainer": {name: str(value) for name, value in without_tokens(flags).items()},
    }
    if (folder / SUPERNET_FILE).is_file():
        claim(folder, TRAINING_FILE, identity)
        return folder
    set_seed(options.seed)
    student, record, tokenizer = load_supernet(bench.folder)
    if start is not None:
        given = load_model(str(start))[0]
        # A start without a token score of its own has it fitted to its own states.
        unfitted = {name: torch.zeros_like(own) for name, own in score_weights(student.model).items()}
        theirs = score_weights(given) if unfitted else {}
        try:
            student.model.load_state_dict({**stock_weights(given), **unfitted, **theirs})
        except RuntimeError as error:
            raise RunError(f"the weights of {start} do not fit {bench.folder}: {one_line(error)}") from error
    trainer = make_trainer(
        folder,
        identity,
        student,
        Fixed(subnet, loss),
        arguments,
        task=bench.task,
        tokenizer=tokenizer,
        reference=record.reference,
        distillation=Distillation(options.label_share, options.state_weight, record.parity),
        pad_to=record.pad_to,
        teacher=bench.supernet if loss == "distill" else None,
    )

    def recovered(weights: str) -> SupernetRecord:
        lowered = False
        if keep_better:
            nets = student, bench.supernet
            after, before = (search_score(trainer, net, subnet, record.pad_to) for net in nets)
            lowered = after.loss > before.loss
        if lowered:
            save_model(bench.supernet.model, tokenizer, folder)
            weights = weights_fingerprint(folder)
        return replace(
            record,
            strategy="fixed",
            seed=options.seed,
            weights=weights,
            metrics={},
            training={
                "model": bench.folder.name,
                "supernet": os.path.relpath(bench.folder, folder.resolve()),
                "inherited": inherited,
                "chosen_on": chosen_on,
                "loss": loss,
                "kept": "inherited" if lowered else "trained",
                "clipped_share": trainer.clipped_share,
                "arguments": changed_arguments(arguments),
            },
            versions=versions(),
            subnet=json.loads(subnet.to_json()),
        )

    return run_training(trainer, folder, recovered, progress=progress)


def recover(options: TrainSupernet, progress: Progress = NO_PROGRESS) -> dict[str, Any]:
    """Distil the full model into a chosen sub-network and print both scores; the same call goes on.

    Args:
        options: ``model`` is a search run, or a supernet together with ``subnet``; ``teacher="none"`` trains
            on the labels instead.
        progress: Receives phases and steps, instead of the Trainer's own bar.

    Returns:
        The folder (``run``), and scores on the ``split`` that did not choose the sub-network, where there is
        one: with the supernet's weights (``inherited``), after the training (``recovered``), of the ``full``
        model, and intervals of recovered minus inherited (``gain``) and minus full (``against_full``).

    Raises:
        LdsearchError: One line for a bad folder, sub-network or option.
        Interrupted: On SIGINT or SIGTERM.
    """
    default = TrainSupernet()
    others = [field.name for field in fields(options) if field.name not in _APPLY]
    if given := [name for name in others if getattr(options, name) != getattr(default, name)]:
        raise RunError(
            f"--{given[0].replace('_', '-')} is for training a supernet; {options.model} names one "
            "sub-network to train"
        )
    if options.teacher not in ("in-place", "none"):
        raise RunError("one sub-network learns from its own full model: --teacher takes in-place or none")
    source = Path(str(options.model))
    target = Target.resolve(source, options.subnet)
    folder = options.place(f"{source.resolve().name}-recovered")
    if folder.resolve() == target.supernet.resolve():
        raise RunError(f"{folder} is the supernet itself: choose another --name")
    split = target.unbiased_split(read_record(target.supernet).splits)
    data = None if options.data == default.data else options.data
    bench = Bench.open(target.supernet, split, data, target.runs)
    bench.require_supernet()
    with interruptible() as stop:
        train_fixed(
            bench,
            folder,
            target.subnet,
            options,
            target.chosen_on,
            keep_better=True,
            progress=progress,
        )
        stop.check()
    trained = Bench.open(folder, split, None, bench.runs, bench.task)
    after = trained.evaluator.statistics(target.subnet)
    before, full = (bench.evaluator.statistics(subnet) for subnet in (target.subnet, bench.full))
    recovered, inherited, best = (bench.score(statistics).value for statistics in (after, before, full))
    metric = bench.task.metric.name
    metrics = {f"{split}_{metric}": recovered, f"{split}_{metric}_inherited": inherited}
    replace(trained.record, metrics=metrics).save(folder)
    lowered = trained.record.training.get("kept") == "inherited"
    kept = "kept as it was, since training lowered the score on the search rows: " if lowered else ""
    gain, gap = bench.difference(after, before), bench.difference(after, full)
    print_fields(
        {
            "sub-network": target.subnet.describe(),
            "inherited": f"{metric} {inherited:.4f} on {gain.examples} {split} examples",
            "recovered": f"{kept}{recovered:.4f}, {gain.mean:+.4f} (95% interval {gain.low:+.4f} to "
            f"{gain.high:+.4f}, paired bootstrap)",
            "full model": f"{best:.4f}; recovered minus full {gap.mean:+.4f} (95% interval "
            f"{gap.low:+.4f} to {gap.high:+.4f})",
            "written": f"{folder}; next: ldsearch export {folder} exported/{folder.name}",
        }
    )
    return {
        "run": str(folder),
        "split": split,
        "inherited": inherited,
        "recovered": recovered,
        "full": best,
        "gain": asdict(gain),
        "against_full": asdict(gap),
    }
