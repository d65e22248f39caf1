"""Trains one sub-network of a supernet on its own, and reports it with the score that it inherits."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from transformers import set_seed

from ldsearch.bench import Bench
from ldsearch.disk.fingerprint import versions, weights_fingerprint
from ldsearch.disk.secrets import without_tokens
from ldsearch.errors import RunError, one_line
from ldsearch.options import TrainSupernet
from ldsearch.runs.folder import claim
from ldsearch.runs.run import SUPERNET_FILE, TRAINING_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord, load_model, load_supernet, save_model
from ldsearch.supernet.saliency import score_weights, stock_weights
from ldsearch.training.distillation import distillation_of
from ldsearch.training.run import (
    changed_arguments,
    make_trainer,
    run_training,
    search_score,
    training_arguments,
)
from ldsearch.training.strategies.base import Fixed
from ldsearch.work.progress import NO_PROGRESS, Progress

STEPS = 300


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
        bench: The supernet; where it was trained from another model (``beside``), that one teaches.
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
    distillation = distillation_of(options, bench.supernet, reverse_kl=bench.record.parity)
    loss: Literal["label", "distill"] = "label" if options.teacher == "none" else "distill"
    inherited, whole = weights_fingerprint(start or bench.folder), bench.beside or bench
    identity = {
        "supernet": inherited,
        **({} if whole is bench else {"taught_by": weights_fingerprint(whole.folder)}),
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
        _take_weights(student, start, bench.folder)
    trainer = make_trainer(
        folder,
        identity,
        student,
        Fixed(subnet, loss),
        arguments,
        task=bench.task,
        tokenizer=tokenizer,
        reference=record.reference,
        distillation=distillation,
        pad_to=record.pad_to,
        teacher=whole.supernet if loss == "distill" else None,
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
                "supernet": os.path.relpath(whole.folder, folder.resolve()),
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


def _take_weights(student: Supernet, start: Path, home: Path) -> None:
    """Put a model's weights into a supernet of the same shapes.

    Raises:
        RunError: If they do not fit.
    """
    given = load_model(str(start))[0]
    # A start without a token score of its own has it fitted to its own states.
    unfitted = {name: torch.zeros_like(own) for name, own in score_weights(student.model).items()}
    theirs = score_weights(given)
    theirs = theirs if theirs.keys() == unfitted.keys() else {}
    try:
        student.model.load_state_dict({**stock_weights(given), **unfitted, **theirs})
    except RuntimeError as error:
        raise RunError(f"the weights of {start} do not fit {home}: {one_line(error)}") from error
