"""The model a training starts from: loaded, or from scratch with a tokenizer trained on the spot."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ldsearch.disk.files import read_fields
from ldsearch.errors import SupernetError, TrainingError, one_line
from ldsearch.options import TrainSupernet
from ldsearch.supernet import Supernet
from ldsearch.supernet.embedding import HEAD as SENTENCES
from ldsearch.supernet.folder import load_config, load_model
from ldsearch.supernet.heads import HEADS, head_of, logits_of
from ldsearch.supernet.refusals import REFUSALS, refuse_config, refuse_sizes, require_finite
from ldsearch.supernet.tokens import PINNED
from ldsearch.tasks import EMBEDDED, DataSource, Task, TextClassification, kinds_of_head, likeliest_kind
from ldsearch.tasks.embedding import SentenceEmbedding
from ldsearch.tasks.tables import read_tables
from ldsearch.tasks.tokenizer import train_bpe, train_wordpiece
from ldsearch.training.run import RATE

_VOCABULARY = 8_000
# Width up to which a pretrained model takes the higher learning rate.
_NARROW = 512
_OF_VECTORS = 3  # times the learning rate of other answers
# Fields of the configuration of a small model from scratch, by the head.
_SMALL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "CausalLM": {
            "model_type": "llama",
            "hidden_size": 128,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "intermediate_size": 384,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
        },
        # Pre-norm, as deep and flexible depths want it.
        "Seq2SeqLM": {
            "model_type": "pegasus",
            "d_model": 128,
            "max_position_embeddings": 512,
            "scale_embedding": True,
            **{f"{stack}_layers": 4 for stack in ("encoder", "decoder")},
            **{f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")},
            **{f"{stack}_ffn_dim": 512 for stack in ("encoder", "decoder")},
        },
    }
)
# Of every other head. Without dropout: a few passes over thousands of texts are too few to overfit, and learn
# faster.
_SMALL_BERT: Mapping[str, Any] = MappingProxyType(
    {
        "model_type": "bert",
        "hidden_size": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
)
# Encoder-decoders whose decoder starts from the token that ends a text; the others start from padding.
_START_AT_END = ("bart", "mbart")


def task_of(model: str | None, source: DataSource) -> str:
    """The kind of task that a model, by name or folder, is fine-tuned for, as compress reads it.

    That is classification where there is none: a pretrained model's own task, to fill in or to write on, says
    nothing of what it is to learn.
    """
    if model is None or model.endswith(".json"):
        return TextClassification.kind
    config = load_config(model)
    heads = (HEADS.get(head_of(name)) for name in config.architectures or [])
    own = [head.name for head in heads if head is not None and not head.generates and head.name != "MaskedLM"]
    kinds = kinds_of_head(own[0], config) if own else []
    if not kinds or source.data == EMBEDDED:
        return (kinds or [TextClassification])[0].kind
    return likeliest_kind(kinds, config, lambda: read_tables(source, kinds[0].by_line)["train"], source).kind


def known_labels(name: str, head: str) -> list[str] | None:
    """Label names of a model fine-tuned with that head, in id order; None for a model without it."""
    config = load_config(name, sentences=head == SENTENCES)
    if head not in [head_of(architecture) for architecture in config.architectures or []]:
        return None
    # transformers turns the ids of a loaded configuration into integers.
    names = cast(dict[int, str], config.id2label)
    return [names[index] for index in sorted(names)]


def named_labels(known: list[str] | None, given: Sequence[str]) -> list[str] | None:
    """Label names in id order: as they are given, else as the model has them.

    Raises:
        TrainingError: If the model has another number of them.
    """
    if given and known is not None and len(given) != len(known):
        raise TrainingError(
            f"--labels names {len(given)} labels; the model has {len(known)}: {', '.join(known)}"
        )
    return list(given) or known


def peak_rate(options: TrainSupernet, *, alone: bool = False) -> float:
    """Default learning rate: narrow models and those from scratch take a higher one (results/recipe/full).

    So do those of sentence embeddings (results/embeddings/blocks).

    Args:
        options: Of the training.
        alone: Whether one sub-network is trained, which starts near to what it is to answer
            (results/reranker/epyc-avx512).
    """
    if options.from_scratch:
        return 5e-4
    width = getattr(load_config(str(options.model)), "hidden_size", None)
    rate = 2 * RATE if isinstance(width, int) and width <= _NARROW else RATE
    if options.task == SentenceEmbedding.kind:
        return _OF_VECTORS * rate
    return RATE if alone else rate


def initial_model(
    options: TrainSupernet, task: Task, has_head: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that training starts from, with the task's head, and its tokenizer.

    Args:
        options: Name the model, or a configuration, or nothing (a small one of the task's kind).
        task: Its texts train the tokenizer of a model from scratch; names the head and its outputs.
        has_head: Whether the named model has been fine-tuned with that head.

    Raises:
        SupernetError: If the model cannot be loaded or made, or is not supported.
    """
    head = HEADS[task.head]
    if not options.from_scratch:
        return load_model(str(options.model), head, None if has_head else task.head_config)
    train = train_bpe if head.generates else train_wordpiece
    tokenizer = train(task.splits["train"].texts, _VOCABULARY)
    end = tokenizer.eos_token_id
    config = _configuration(options.model, head.name)
    refuse_config(vars(config), str(options.model))
    refuse_sizes(vars(config), str(options.model))
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    if head.generates:
        config.eos_token_id = config.bos_token_id = end
        if config.is_encoder_decoder:
            starts_at_end = config.model_type in _START_AT_END
            config.decoder_start_token_id = end if starts_at_end else config.pad_token_id
            config.forced_eos_token_id = end
    config.update(dict(task.head_config))
    _check_reloads(config, tokenizer, list(task.splits["train"].texts[:20]))
    try:
        model = cast(PreTrainedModel, head.auto.from_config(config))
        # Some sizes only fail when the model runs.
        tokens = torch.zeros(1, 2, dtype=torch.long)
        answers = {"decoder_input_ids": tokens} if config.is_encoder_decoder else {}
        with torch.no_grad():
            finite = bool(logits_of(model.eval()(input_ids=tokens, **answers)).isfinite().all())
        model.train()
    except REFUSALS as error:
        raise SupernetError(f"{options.model} describes no model: {one_line(error)}") from error
    require_finite(model, str(options.model))
    if not finite:
        raise SupernetError(f"the outputs of the model that {options.model} describes are NaN or infinite")
    return model, tokenizer


def _configuration(name: str | None, head: str) -> PreTrainedConfig:
    """Read a configuration from a JSON file, or make that of a small model with the head."""
    try:
        fields = dict(_SMALL.get(head, _SMALL_BERT))
        if name is not None:
            fields = read_fields(Path(name), SupernetError)
        refuse_config(fields, str(name))
        refuse_sizes(fields, str(name))
        return AutoConfig.for_model(fields.pop("model_type"), **fields)
    except REFUSALS as error:
        raise SupernetError(f"{name} is no model configuration: {one_line(error)}") from error


def _check_reloads(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> None:
    """Some model types (Qwen2) have transformers rebuild another tokenizer than the one that was saved."""
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        again = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if again(texts)["input_ids"] != tokenizer(texts)["input_ids"]:
        raise SupernetError(
            f"transformers would not reload a {config.model_type} model with the tokenizer that is trained "
            "for it: start from a folder that has one, or from another model type"
        )


def pin_query(config: PreTrainedConfig, task: Task, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write into a configuration that the first text of a pair is never dropped.

    Raises:
        TrainingError: If the task has no queries, or no token of the tokenizer ends one.
    """
    if not task.together:
        raise TrainingError(f"--pin-query is for --task ranking; {task.kind} has no queries")
    if tokenizer.sep_token_id is None:
        raise TrainingError("--pin-query: no token of this tokenizer ends the query ([SEP])")
    setattr(config, PINNED, tokenizer.sep_token_id)


def separate_teacher(
    options: TrainSupernet, task: Task, student: Supernet, tokenizer: PreTrainedTokenizerBase
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
    own = None if options.from_scratch else known_labels(str(options.model), task.head)
    # The data may spell them otherwise; a single number has no name.
    alike = labels in (own, list(task.labels)) or len(labels or ()) == len(task.labels) == 1
    if labels is None or (task.labels and not alike):
        raise SupernetError(
            f"the teacher {options.teacher!r} is not fine-tuned for {', '.join(task.labels) or task.head}"
        )
    model, own_tokenizer = load_model(options.teacher, HEADS[task.head])
    if own_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise SupernetError(f"the teacher {options.teacher!r} has another vocabulary than the model")
    # Both read what the student's tokenizer makes of a text.
    mine, theirs = (one("a", "b").get("token_type_ids", [0]) for one in (tokenizer, own_tokenizer))
    if any(theirs) and not any(mine) and task.source.get("columns", {}).get("pair") is not None:
        raise SupernetError(
            f"the teacher {options.teacher!r} is told which text of a pair a token is of, the model is not"
        )
    teacher = Supernet(model)
    if teacher.longest < options.tokens:
        raise SupernetError(
            f"the teacher {options.teacher!r} reads {teacher.longest} tokens, fewer than --max-length "
            f"{options.tokens}"
        )
    widths = [one.model.config.hidden_size for one in (teacher, student)]
    if options.state_weight and (widths[0] != widths[1] or not teacher.reads_first):
        raise SupernetError(
            f"--state-weight compares states, and those of the teacher {options.teacher!r} are of another "
            "kind than the model's"
        )
    return teacher
