"""Fingerprints of measurements: digests of weights, data and semantics, and the library versions."""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ldsearch.errors import SupernetError, one_line

# A change here means that the same sub-network on the same weights may give other logits.
EXECUTOR_SEMANTICS = 4


def digest(*parts: Iterable[Any] | str) -> str:
    """Sixteen hex digits of SHA-256 over the JSON of the parts, in order."""
    state = hashlib.sha256()
    for part in parts:
        state.update(json.dumps(part if isinstance(part, str) else list(part), sort_keys=True).encode())
    return state.hexdigest()[:16]


def weights_fingerprint(folder: Path) -> str:
    """Digest of every tensor in the folder's safetensors files, by name, independent of file layout.

    Raises:
        FileNotFoundError: If the folder holds no safetensors.
        SupernetError: If a file is damaged.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no safetensors")
    tensors: dict[str, str] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118 (safe_open is no mapping)
                    tensors[name] = _tensor_digest(weights.get_tensor(name))
        except SafetensorError as error:
            raise SupernetError(f"{path} is damaged: {one_line(error)}") from error
    return digest(sorted(tensors.items()))


def start_fingerprint(weights: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> str:
    """Digest of what a training starts from: every tensor by name, and the configuration."""
    tensors = {name: _tensor_digest(tensor) for name, tensor in weights.items()}
    return digest(sorted(tensors.items()), config_json(config))


def config_json(config: Mapping[str, Any]) -> str:
    """A model's configuration without where it was loaded from."""
    fields = {name: value for name, value in config.items() if not name.startswith("_")}
    return json.dumps(fields, sort_keys=True, default=str)


def _tensor_digest(tensor: torch.Tensor) -> str:
    # As bytes, since NumPy has no bfloat16.
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(content).hexdigest() + f"{tensor.dtype}{tuple(tensor.shape)}"


def versions() -> dict[str, str]:
    """The libraries whose version can change a number."""
    names = ("ldsearch", "torch", "transformers", "tokenizers", "numpy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
