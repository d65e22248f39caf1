"""Trains one sub-network of a supernet on its own: what recovery and health have in common."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from transformers import set_seed

from ldsearch.bench import Workbench
from ldsearch.commands.arguments import changed_arguments, training_arguments
from ldsearch.commands.train_options import TrainOptions
from ldsearch.commands.train_supernet import fit, make_trainer
from ldsearch.errors import RunError
from ldsearch.fingerprint import versions, weights_fingerprint
from ldsearch.interruption import interruptible
from ldsearch.runs import SUPERNET_FILE, TRAINING_FILE, claim
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import load_supernet, save_model
from ldsearch.training.checkpoints import Writing, remove_checkpoints
from ldsearch.training.strategies.fixed import Fixed
from ldsearch.training.teaching import Distillation

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
        trainer: More arguments, as the Hugging Face Trainer's command line takes them.
    """

    steps: int = STEPS
    loss: Literal["label", "distill"] = "distill"
    label_share: float | None = None
    state_weight: float = 0.0
    seed: int = 0
    trainer: tuple[str, ...] = ()


def train_fixed(
    bench: Workbench, folder: Path, subnet: Subnet, options: FixedOptions, chosen_on: str | None = None
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
    flags = ("--max_steps", str(options.steps), *options.trainer)
    start = TrainOptions(model=str(bench.folder), strategy="fixed", seed=options.seed, trainer=flags)
    arguments = training_arguments(folder, start)
    inherited = weights_fingerprint(bench.folder)
    identity = {
        "supernet": inherited,
        "subnet": subnet.to_json(),
        "loss": options.loss,
        "label_share": options.label_share,
        "state_weight": options.state_weight,
        "seed": options.seed,
        "trainer": list(flags),
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
        pad_to=record.reference if record.parity else None,
        teacher=bench.supernet if options.loss == "distill" else None,
    )
    # A signal between two of the final files would leave half a model.
    with interruptible(), Writing(folder):
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
