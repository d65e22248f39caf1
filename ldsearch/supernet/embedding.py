"""Models of sentence-transformers: an encoder whose answer is one vector a text.

A folder of theirs says in ``modules.json`` how the vector is made of the encoder's last states. What is
supported is written into the configuration, so that the model saves and loads like one of transformers:
``sentence_embedding``, with ``pooling`` (``"mean"`` or ``"cls"``) and ``normalised``.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING
from transformers.utils import cached_file  # type: ignore[attr-defined]
from transformers.utils.generic import ModelOutput

from ldsearch.disk.files import read_fields, read_json, write_json
from ldsearch.errors import SupernetError
from ldsearch.supernet.correction import mean_of

HEAD = "SentenceEmbedding"
OUTPUT = "sentence_embedding"  # as sentence-transformers calls it
MODULES_FILE = "modules.json"
_LIMIT_FILE = "sentence_bert_config.json"  # how many tokens are read
_POOLING_FOLDER = "1_Pooling"
_MODULE = "sentence_transformers.models"
# What their files call the ways of pooling that are supported.
_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@dataclass
class SentenceOutput(ModelOutput):
    """Output of a sentence encoder: vectors of shape (B, d), also as ``sentence_embedding``."""

    logits: Tensor | None = None

    @property
    def sentence_embedding(self) -> Tensor:
        """Shape (B, d)."""
        assert self.logits is not None
        return self.logits


class AutoSentenceEmbedding:
    """Makes models of sentences, as transformers' auto classes make others."""

    @classmethod
    def from_pretrained(cls, name: str, *, config: PreTrainedConfig, **how: Any) -> Any:
        """The model in a folder or of a hub id, with what ``output_loading_info`` asks for."""
        how.pop("trust_remote_code", None)
        return cast(Any, _class_of(config)).from_pretrained(name, config=config, **how)

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> PreTrainedModel:
        """A random one."""
        return _class_of(config)(config)


def pooling_of(config: PreTrainedConfig) -> str:
    """Pooling of the states into a vector: ``"mean"`` of all, or ``"cls"``, the first."""
    return str(_how(config)["pooling"])


def _how(config: PreTrainedConfig) -> Mapping[str, Any]:
    return {"pooling": "mean", "normalised": True, **(getattr(config, OUTPUT, None) or {})}


def _class_of(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class of a configuration's models.

    Raises:
        SupernetError: If transformers has no such encoder.
    """
    if type(config) not in MODEL_MAPPING:
        raise SupernetError(f"transformers has no encoder for {config.model_type}")
    return _made(MODEL_MAPPING[type(config)])


@cache
def _made(encoder: Any) -> type[PreTrainedModel]:
    parent: Any = next(base for base in encoder.__mro__[1:] if issubclass(base, PreTrainedModel))
    takes_pooler = "add_pooling_layer" in inspect.signature(encoder).parameters

    class Made(parent):  # type: ignore[misc]
        """An encoder whose answer is one vector a text."""

        # Checkpoints have the pooler of their first training, which no vector reads.
        _keys_to_ignore_on_load_unexpected = (r"pooler\.",)

        def __init__(self, config: PreTrainedConfig) -> None:
            super().__init__(config)
            options = {"add_pooling_layer": False} if takes_pooler else {}
            setattr(self, parent.base_model_prefix, encoder(config, **options))
            self.post_init()

        def forward(
            self,
            input_ids: Tensor | None = None,
            attention_mask: Tensor | None = None,
            token_type_ids: Tensor | None = None,
            return_dict: bool = True,
            **others: Any,
        ) -> Any:
            """Vectors (B, d) of inputs (B, n)."""
            given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
            given = {name: tensor for name, tensor in given.items() if tensor is not None}
            answer = getattr(self, self.base_model_prefix)(input_ids, **given, **others)
            output = SentenceOutput(logits=pooled(answer.last_hidden_state, attention_mask, self.config))
            return output if return_dict else output.to_tuple()

    Made.__name__ = Made.__qualname__ = f"{encoder.__name__.removesuffix('Model')}For{HEAD}"
    return Made


def pooled(hidden: Tensor, mask: Tensor | None, config: PreTrainedConfig) -> Tensor:
    """The vectors (B, d) of last hidden states (B, n, d): of those that the mask (B, n) has alone."""
    if pooling_of(config) == "cls":
        vectors = hidden[:, 0]
    elif mask is None:
        vectors = hidden.mean(dim=1)
    else:
        vectors, _ = mean_of(hidden, mask)
    return nn.functional.normalize(vectors, dim=-1) if _how(config)["normalised"] else vectors


def read_modules(config: PreTrainedConfig, name: str) -> None:
    """Tell a configuration of a bare encoder how its folder makes vectors; another stays as it is.

    Args:
        config: Changed in place: its architecture and ``sentence_embedding``.
        name: Folder or hub id.

    Raises:
        SupernetError: If the vectors are made in a way that is not supported.
    """
    architecture = str((config.architectures or [""])[0])
    path = None if "For" in architecture else _file(name, MODULES_FILE)
    if path is None:
        return
    listed = read_json(Path(path), SupernetError)
    modules = [str(module["type"]).rpartition(".")[2] for module in listed]
    if modules not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise SupernetError(
            f"{name} makes its vectors by {', '.join(modules)}: what is supported is an encoder "
            "(Transformer), its mean or first state (Pooling), normalised or not (Normalize)"
        )
    file = _file(name, f"{listed[1]['path']}/config.json")
    if file is None:
        raise SupernetError(f"{name} has no {listed[1]['path']}/config.json, which {MODULES_FILE} names")
    pooling = read_fields(Path(file), SupernetError)
    # One word as newer files have it, or a switch for each way.
    ways = [_POOLINGS.get(key, key) for key, on in pooling.items() if key.startswith("pooling_mode_") and on]
    ways = [str(pooling["pooling_mode"])] if "pooling_mode" in pooling else ways
    if ways not in (["mean"], ["cls"]) or not pooling.get("include_prompt", True):
        raise SupernetError(
            f"{name} pools by {' and '.join(ways)}: mean and cls are supported, of all tokens"
        )
    config.architectures = [f"{architecture.removesuffix('Model')}For{HEAD}"]
    setattr(config, OUTPUT, {"pooling": ways[0], "normalised": "Normalize" in modules})


def longest_read(name: str) -> int | None:
    """To how many tokens sentence-transformers cuts what it gives to the model of a folder, where it says."""
    path = _file(name, _LIMIT_FILE)
    limit = None if path is None else read_fields(Path(path), SupernetError).get("max_seq_length")
    return limit if isinstance(limit, int) else None


def write_modules(config: PreTrainedConfig, folder: Path, longest: int) -> None:
    """Write beside an encoder what ``SentenceTransformer`` reads.

    Args:
        config: Of the model.
        folder: Of the encoder.
        longest: Tokens that inputs are cut to.
    """
    modules = [("", "Transformer"), (_POOLING_FOLDER, "Pooling")]
    modules += [("2_Normalize", "Normalize")] if _how(config)["normalised"] else []
    fields = [
        {"idx": at, "name": str(at), "path": path, "type": f"{_MODULE}.{kind}"}
        for at, (path, kind) in enumerate(modules)
    ]
    write_json(folder / MODULES_FILE, fields)
    (folder / _POOLING_FOLDER).mkdir(exist_ok=True)
    way = pooling_of(config)
    pooling = {key: way == own for key, own in _POOLINGS.items()}
    write_json(
        folder / _POOLING_FOLDER / "config.json", {"word_embedding_dimension": config.hidden_size, **pooling}
    )
    write_json(folder / _LIMIT_FILE, {"max_seq_length": longest, "do_lower_case": False})


def _file(name: str, file: str) -> str | None:
    return cached_file(
        name,
        file,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
