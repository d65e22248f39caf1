"""Trains a supernet and writes its folder; an interrupted training goes on where it stopped."""

import shutil
from fractions import Fraction
from pathlib import Path

from transformers import TrainingArguments, set_seed

from ldsearch.errors import RunError, TrainingError, one_line
from ldsearch.evaluation import Evaluator
from ldsearch.fingerprint import versions, weights_fingerprint
from ldsearch.length_drop import as_rate, default_bound
from ldsearch.runs import SUPERNET_FILE, TRAINING_FILE, claim
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord
from ldsearch.tasks import TextClassification
from ldsearch.tasks.classification import Encoded
from ldsearch.training.strategies import Setting, make_strategy
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.trial import Score
from ldsearch.workflows.arguments import changed_arguments, training_arguments
from ldsearch.workflows.models import initial_model, known_labels
from ldsearch.workflows.options import TrainOptions, load_task

_PARITY_BOUND = Fraction(1, 5)
_PLAIN_SHARE = 0.4


def train_supernet(folder: str | Path, options: TrainOptions | None = None) -> Path:
    """Train once so that every depth and length works; returns the folder.

    The folder loads as the plain full model with stock ``transformers`` and carries ``supernet.json``.

    Raises:
        LdsearchError: One line for bad data, models, options, or a folder that holds another run.
    """
    folder, options = Path(folder), options or TrainOptions()
    if (folder / SUPERNET_FILE).exists():
        raise RunError(f"{folder} already holds a finished supernet: choose another --name")
    arguments = training_arguments(folder, options)
    labels = None if options.from_scratch else known_labels(str(options.model))
    set_seed(options.seed)
    task = load_task(options, labels)
    model, tokenizer = initial_model(options, task, has_head=labels is not None)
    supernet = Supernet(model, "column-with-pads" if options.parity else "column")
    setting = _setting(options, supernet, has_head=labels is not None)
    strategy = make_strategy(options.strategy, setting)
    train, search = (task.encode(split, tokenizer, setting.reference) for split in ("train", "search"))
    pad_to = setting.reference if options.parity else None
    fresh = claim(folder, TRAINING_FILE, {**options.identity(), "splits": task.fingerprints})
    try:
        trainer = SupernetTrainer(
            supernet,
            strategy,
            arguments,
            task=task,
            train=train,
            search=search,
            tokenizer=tokenizer,
            reverse_kl=options.parity,
            pad_to=pad_to,
        )
    except (ValueError, RuntimeError, ImportError) as error:
        if fresh:
            shutil.rmtree(folder)
        raise TrainingError(f"the Trainer refuses its arguments: {one_line(error)}") from error
    checkpoints = folder / "checkpoints"
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(checkpoints))
    if not trainer.is_world_process_zero():
        return folder
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # A new supernet around the same weights: the trained one still computes in the Trainer's precision.
    trained = Supernet(model, supernet.score)
    evaluator = Evaluator(
        trained,
        task,
        search,
        split="search",
        tokenizer=tokenizer,
        costs=(),
        fingerprint="",
        pad_to=pad_to,
    )
    score = task.score(evaluator.statistics(Subnet.full(trained.blocks)))
    _record(options, setting, arguments, task, supernet, search, folder, score).save(folder)
    _remove_checkpoints(checkpoints)
    return folder


def last_complete_checkpoint(checkpoints: Path) -> str | None:
    """The newest checkpoint that was written to its end; those that were not are removed.

    A training killed while it saved leaves a folder from which it could not, or only seemingly, go on.
    """
    steps = [path for path in checkpoints.glob("checkpoint-*") if path.name.split("-")[1].isdigit()]
    for path in sorted(steps, key=lambda path: int(path.name.split("-")[1]), reverse=True):
        names = {file.name for file in path.iterdir()}
        whole = {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"} <= names
        if whole and any(name.startswith("rng_state") for name in names):
            return str(path)
        shutil.rmtree(path)
    return None


def _remove_checkpoints(checkpoints: Path) -> None:
    """What else lies there (TensorBoard's logs) is the user's and stays."""
    for checkpoint in checkpoints.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    if checkpoints.is_dir() and not any(checkpoints.iterdir()):
        checkpoints.rmdir()


def _setting(options: TrainOptions, supernet: Supernet, has_head: bool) -> Setting:
    longest = supernet.model.config.max_position_embeddings
    if not 2 <= options.tokens <= longest:
        raise TrainingError(f"--max-length must lie in 2..{longest} for this model, not {options.tokens}")
    bound = _PARITY_BOUND if options.parity else default_bound(supernet.blocks)
    if options.drop_bound is not None:
        bound = as_rate(options.drop_bound)
    plain_share = options.plain_share
    if plain_share is None:
        plain_share = 0.0 if has_head else _PLAIN_SHARE
    return Setting(
        blocks=supernet.blocks,
        reference=options.tokens,
        drop_bound=bound,
        layer_drop=options.layer_drop,
        length_mode="absolute" if options.parity else "ratio",
        plain_share=plain_share,
        parity=options.parity,
    )


def _record(
    options: TrainOptions,
    setting: Setting,
    arguments: TrainingArguments,
    task: TextClassification,
    supernet: Supernet,
    search: Encoded,
    folder: Path,
    score: Score,
) -> SupernetRecord:
    trains_lengths = options.strategy == "lengthdrop"
    return SupernetRecord(
        strategy=options.strategy,
        seed=options.seed,
        blocks=setting.blocks,
        reference=setting.reference,
        drop_bound=str(setting.drop_bound) if trains_lengths else None,
        layer_drop=0.0 if options.strategy == "plain" else setting.layer_drop,
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
        metrics={f"search_{task.metric}": score.value},
        training={
            "model": options.model,
            "plain_share": setting.plain_share if trains_lengths else None,
            "arguments": changed_arguments(arguments),
        },
        versions=versions(),
    )
