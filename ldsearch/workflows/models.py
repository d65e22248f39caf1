"""The model a training starts from: loaded, or from scratch with a tokenizer trained on the spot."""

import json
from pathlib import Path
from typing import cast

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ldsearch.errors import SupernetError, one_line
from ldsearch.supernet.families import family_of
from ldsearch.supernet.folder import load_classifier, load_config
from ldsearch.tasks import TextClassification
from ldsearch.tasks.tokenizer import train_wordpiece
from ldsearch.workflows.options import TrainOptions

_VOCABULARY = 8_000


def known_labels(name: str) -> list[str] | None:
    """Label names of a fine-tuned classifier, in id order; None for a model without such a head."""
    config = load_config(name)
    architectures = config.architectures or []
    if not any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        return None
    # transformers turns the ids of a loaded configuration into integers.
    names = cast(dict[int, str], config.id2label)
    return [names[index] for index in sorted(names)]


def initial_model(
    options: TrainOptions, task: TextClassification, has_head: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The classifier that training starts from, and its tokenizer.

    Args:
        options: Name the model, or a configuration, or nothing (a small BERT).
        task: Its texts train the tokenizer of a model from scratch; its labels name the head's outputs.
        has_head: Whether the named model is a fine-tuned classifier.

    Raises:
        SupernetError: If the model cannot be loaded or made, or its family is not supported.
    """
    if not options.from_scratch:
        return load_classifier(str(options.model), None if has_head else list(task.labels))
    tokenizer = train_wordpiece(task.splits["train"].texts, _VOCABULARY)
    config = _small_bert() if options.model is None else _read_config(Path(options.model))
    family_of(config)
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    config.id2label = dict(enumerate(task.labels))
    config.label2id = {label: index for index, label in enumerate(task.labels)}
    try:
        return AutoModelForSequenceClassification.from_config(config), tokenizer
    except (ValueError, RuntimeError) as error:
        raise SupernetError(f"{options.model} describes no model: {one_line(error)}") from error


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
