"""The model a training starts from: loaded, or from scratch with a tokenizer trained on the spot."""

import json
from pathlib import Path
from typing import cast

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    BertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ldsearch.errors import SupernetError, TrainingError, one_line
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_config, load_model
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.refusals import refuse_config
from ldsearch.tasks import Task
from ldsearch.tasks.tokenizer import train_wordpiece
from ldsearch.workflows.options import TrainOptions

_VOCABULARY = 8_000


def known_labels(name: str, head: str) -> list[str] | None:
    """Label names of a model fine-tuned with that head, in id order; None for a model without it."""
    config = load_config(name)
    architectures = config.architectures or []
    if not any(architecture.endswith(f"For{head}") for architecture in architectures):
        return None
    # transformers turns the ids of a loaded configuration into integers.
    names = cast(dict[int, str], config.id2label)
    return [names[index] for index in sorted(names)]


def initial_model(
    options: TrainOptions, task: Task, has_head: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that training starts from, with the task's head, and its tokenizer.

    Args:
        options: Name the model, or a configuration, or nothing (a small BERT).
        task: Its texts train the tokenizer of a model from scratch; names the head and its outputs.
        has_head: Whether the named model has been fine-tuned with that head.

    Raises:
        SupernetError: If the model cannot be loaded or made, or is not supported.
    """
    head = HEADS[task.head]
    if not options.from_scratch:
        return load_model(str(options.model), head, None if has_head else task.head_config)
    tokenizer = train_wordpiece(task.splits["train"].texts, _VOCABULARY)
    config = _small_bert() if options.model is None else _read_config(Path(options.model))
    refuse_config(vars(config), str(options.model))
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    config.update(dict(task.head_config))
    try:
        return cast(PreTrainedModel, head.auto.from_config(config)), tokenizer
    except (ValueError, RuntimeError) as error:
        raise SupernetError(f"{options.model} describes no model: {one_line(error)}") from error


def separate_teacher(
    options: TrainOptions, task: Task, tokenizer: PreTrainedTokenizerBase
) -> Supernet | None:
    """The fine-tuned model that LengthDrop's sub-networks are to learn from; None: the batch's full pass.

    Raises:
        SupernetError: If it cannot be loaded, or reads or answers otherwise than the model that is trained.
        TrainingError: If the strategy does not distil.
    """
    if options.teacher in ("in-place", "none"):
        return None
    if options.strategy != "lengthdrop":
        raise TrainingError(f"--teacher is for --strategy lengthdrop; {options.strategy} does not distil")
    labels = known_labels(options.teacher, task.head)
    if labels is None or (task.labels and labels != list(task.labels)):
        raise SupernetError(
            f"the teacher {options.teacher!r} is not fine-tuned for {', '.join(task.labels) or task.head}"
        )
    model, own_tokenizer = load_model(options.teacher, HEADS[task.head])
    if own_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise SupernetError(f"the teacher {options.teacher!r} has another vocabulary than the model")
    return Supernet(model)


def _small_bert() -> BertConfig:
    # Without dropout: a few passes over thousands of texts are too few to overfit, and learn faster.
    return BertConfig(
        hidden_size=128,
        num_hidden_layers=6,
        num_attention_heads=2,
        intermediate_size=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def _read_config(path: Path) -> PreTrainedConfig:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return AutoConfig.for_model(fields.pop("model_type"), **fields)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, StrictDataclassError) as error:
        raise SupernetError(f"{path} is no model configuration: {one_line(error)}") from error
