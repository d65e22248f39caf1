"""Models that are refused: by configuration before anything is built, by weights and tokens after."""

import inspect
import itertools
import math
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.disk.files import read_fields
from ldsearch.disk.records import typed
from ldsearch.errors import SupernetError, one_line
from ldsearch.subnet import MOST_BLOCKS
from ldsearch.supernet.saliency import score_weights

# What transformers and its models raise for a configuration or a file that makes no sense to them.
REFUSALS = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, AssertionError),
    *(RuntimeError, ImportError, RecursionError, SafetensorError, StrictDataclassError, OSError),
)

# Fields of a configuration that are refused, and why.
_REFUSED = {
    "attention_window": "attends within windows of its own (attention_window), which is not supported",
    "auto_map": "brings code of its own (auto_map), which ldsearch never runs",
    "chunk_size_feed_forward": "runs its feed-forward in chunks, of which every length would have to be some",
    "num_kv_shared_layers": "hands keys and values of some blocks on to others, so none can be left out",
    "quantization_config": "is quantised: train and search in full precision, quantise the export",
    "scale_attn_by_inverse_layer_idx": "scales attention by the block's number, so no block can be left out",
}
# Kinds of model that are refused, and why.
_KINDS = {
    "canine": "hashes characters instead of looking tokens up, which is not supported",
    "diffllama": "weighs attention by the block's number, so no block can be left out",
    "esmc": "scales each block by the number of blocks, so none can be left out",
    "ibert": "computes in integers of its own, which is not supported",
    "minicpm3": "scales each block by the number of blocks, so none can be left out",
}
# Numbers of blocks, heads and units by the words in their names, in lower case, with the largest of each.
_LARGEST = (
    (re.compile(r"(^|_)n?_?layers?$|_blocks$"), MOST_BLOCKS),
    (re.compile(r"(^|_)heads?$"), 2**12),
    (
        re.compile(r"^(d_model|dim|n_embd|d_kv|head_dim)$|(hidden|embedding|word_embed_proj)_(size|dim)$"),
        2**16,
    ),
    (re.compile(r"^(d_ff|n_inner)$|intermediate_size$|ffn_dim$|^hidden_dim$|(_vocab|^vocab)_size$"), 2**24),
    (re.compile(r"^(max_position_embeddings|n_positions)$"), 2**24),
)
# Of which a model may have none: token types, and blocks or units of a kind that most have not.
_MAY_BE_NONE = re.compile(r"^type_vocab_size$|shared_|prior_.*_blocks$|nextn_predict_layers$")
# What mixture-of-experts configurations call their number of experts.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok")


def refuse_model(model: PreTrainedModel) -> None:
    """Refuse PEFT-wrapped, quantised and mixture-of-experts models, and those that cannot tell padding.

    Raises:
        SupernetError: If it is one.
    """
    if hasattr(model, "peft_config") or type(model).__module__.partition(".")[0] == "peft":
        raise SupernetError(
            "the model carries PEFT adapters: merge them into the weights first (merge_and_unload)"
        )
    refuse_config({**vars(model.config), "model_type": model.config.model_type}, type(model).__name__)
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        raise SupernetError(
            f"{type(model).__name__} reads no attention mask: what pads a batch would change its answers"
        )


def refuse_config(fields: Mapping[str, Any], name: str) -> None:
    """Refuse models by their configuration, before any weight is read.

    Raises:
        SupernetError: For code shipped with the model, quantised weights, mixtures of experts, and blocks
            that depend on their number.
    """
    kind = _KINDS.get(str(fields.get("model_type")))
    for why in (kind, *(why for key, why in _REFUSED.items() if fields.get(key))):
        if why is not None:
            raise SupernetError(f"the model {name!r} {why}")
    if fields.get("attention_type") == "block_sparse":
        raise SupernetError(
            f"the model {name!r} attends to blocks of tokens, which is not supported: set attention_type to "
            "original_full in its configuration"
        )
    try:
        typed(fields.get("architectures") or [], list[str], "architectures")
    except ValueError as error:
        raise SupernetError(f"the configuration of {name!r} is damaged: {error}") from error
    if any(isinstance(fields.get(key), int) and fields[key] > 1 for key in _EXPERTS):
        raise SupernetError(f"the model {name!r} is a mixture of experts, which ldsearch does not support")


def refuse_sizes(fields: Mapping[str, Any], name: str) -> None:
    """Refuse a configuration with sizes that are none, or that no model has, before they are built.

    Raises:
        SupernetError: Naming the first.
    """
    for key, value in fields.items():
        _refuse_size(key, value, name)


def _refuse_size(key: str, value: Any, name: str) -> None:
    """A size that is none, or that no model has: what follows from it would be built first."""
    largest = next((most for pattern, most in _LARGEST if pattern.search(key)), None)
    if largest is None or value is None or isinstance(value, bool | dict | list):
        return
    least = 0 if _MAY_BE_NONE.search(key) else 1
    if type(value) is not int or not least <= value <= largest:
        raise SupernetError(
            f"the model {name!r} has {key} {reprlib.repr(value)}, no whole number in {least}..{largest:,}"
        )


def require_finite(model: nn.Module, name: str, why: str = "") -> None:
    """Refuse weights that are NaN or infinite: every score would be an accident.

    Args:
        model: The model.
        name: Whose weights they are, for the message.
        why: What may have made them so.

    Raises:
        SupernetError: Naming the first such weight.
    """
    for key, tensor in itertools.chain(model.named_parameters(), score_weights(model).items()):
        if tensor.numel() and not all(map(math.isfinite, map(float, torch.aminmax(tensor.detach())))):
            raise SupernetError(f"the weights of {name} are NaN or infinite ({key}){why}")


def require_vocabulary(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, name: str) -> None:
    """Refuse a folder without a tokenizer's files, or a tokenizer with tokens that the model has not.

    Where the files are missing, transformers makes a tokenizer of special tokens alone.

    Raises:
        SupernetError: If it is one.
    """
    files = set(tokenizer.vocab_files_names.values())
    if Path(name).is_dir() and files and not any((Path(name) / file).is_file() for file in files):
        raise SupernetError(f"the model {name!r} has no tokenizer files: save its tokenizer beside it")
    rows = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
    if len(tokenizer) > rows:
        raise SupernetError(f"the tokenizer of {name!r} has {len(tokenizer)} tokens, its model only {rows}")


def refuse_index(folder: Path) -> None:
    """Refuse an index of weights that names anything but safetensors in the folder itself.

    Raises:
        SupernetError: If it does, or is damaged.
    """
    path = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not path.is_file():
        return
    try:
        names = set(typed(read_fields(path, SupernetError).get("weight_map"), dict[str, str]).values())
    except ValueError as error:
        raise SupernetError(f"{path} is damaged: {one_line(error)}") from error
    for name in names or {"no file"}:
        if Path(name).name != name or not name.endswith(".safetensors") or not (folder / name).is_file():
            raise SupernetError(f"{path} names {name}, which is no safetensors file beside it")
