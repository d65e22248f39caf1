"""Flags of a training that neither ldsearch nor the Trainer knows, and what takes their place."""

from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType

from transformers import TrainingArguments

from ldsearch.options import TrainSupernet, flag_of

# What transformers 5 has no more, or has in the scripts of its examples, or under another name.
_OTHERS = MappingProxyType(
    {
        "--warmup_ratio": "--warmup_steps takes a share of the steps, too: --warmup_steps 0.1",
        "--group_by_length": "batches are drawn by length already",
        "--evaluation_strategy": "it is called --eval_strategy now",
        "--no_cuda": "it is called --use_cpu now",
        "--overwrite_output_dir": "name another run with --name, or remove the folder",
        "--per_gpu_train_batch_size": "it is called --per_device_train_batch_size",
        "--tokenizer": "the tokenizer is the model's",
        "--lr": "it is called --learning_rate",
        "--max_seq_length": "it is called --max-length",
    }
)
_ALIKE = 0.8  # as difflib counts it


def instead_of(flag: str) -> str | None:
    """A hint for an unknown flag: the nearest known one or its successor; None if there is none."""
    if flag in _OTHERS or not flag.startswith("--"):
        return _OTHERS.get(flag)
    word = flag.removeprefix("--").replace("-", "_")
    theirs = [field.name for field in fields(TrainingArguments)]
    flags = {name: f"--{name}" for name in theirs}
    flags |= {field.name: flag_of(field.name) for field in fields(TrainSupernet) if field.metadata}
    # "epochs" for "num_train_epochs", "batch_size" for that of the training.
    longer = sorted((name for name in theirs if name.endswith(f"_{word}")), key=lambda name: "eval" in name)
    found = [*get_close_matches(word, flags, 1, _ALIKE), *longer]
    return f"did you mean {flags[found[0]]}?" if found else None
