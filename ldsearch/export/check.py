"""Runs exported folders and nothing else, in a process of its own: ``python -m ldsearch.export.check PLACE``.

Knows no supernet; an ONNX folder is run by NumPy and ONNX Runtime alone.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.export.staging import ONNX_FILE

Batch = Mapping[str, NDArray[np.int64]]
Logits = NDArray[np.float32]
Job = tuple[Path, str]

JOBS, INPUTS, OUTPUTS = "jobs.json", "inputs.npz", "outputs.npz"


def run(jobs: Sequence[Job], batches: Sequence[Batch], device: str = "cpu") -> list[list[Logits]]:
    """What exported folders make of batches.

    Args:
        jobs: Folders, and who reads each: a name of ``READERS``.
        batches: Inputs by name, each of shape (B, n).
        device: Where torch runs them.

    Returns:
        Logits of each batch, for each job; a span head's two as shape (B, n, 2).
    """
    outputs = []
    for folder, reader in jobs:
        model = READERS[reader](Path(folder), device)
        outputs.append([model(batch) for batch in batches])
    return outputs


def main(place: Path) -> None:
    """Read what ``ldsearch.export.verification`` left in a folder, run it, leave the outputs there."""
    asked = json.loads((place / JOBS).read_text(encoding="utf-8"))
    with np.load(place / INPUTS) as file:
        held = dict(file)
    batches = [
        {name.partition(".")[2]: array for name, array in held.items() if name.startswith(f"{index}.")}
        for index in range(asked["batches"])
    ]
    jobs = [(Path(folder), reader) for folder, reader in asked["jobs"]]
    outputs = run(jobs, batches, asked["device"])
    named = {f"{job}.{index}": array for job, own in enumerate(outputs) for index, array in enumerate(own)}
    np.savez(place / OUTPUTS, **named)  # type: ignore[arg-type]  # its only other argument is a flag


def _of_onnxruntime(folder: Path, device: str) -> Callable[[Batch], Logits]:
    session = import_module("onnxruntime").InferenceSession(
        folder / ONNX_FILE, providers=["CPUExecutionProvider"]
    )
    names = [entry.name for entry in session.get_inputs()]

    def call(batch: Batch) -> Logits:
        blank = np.zeros_like(batch["input_ids"])  # one segment, where the tokenizer names none
        found = session.run(None, {name: batch.get(name, blank) for name in names})
        return np.stack(found, axis=-1) if len(found) > 1 else found[0]

    return call


def _of_ldsearch(folder: Path, device: str) -> Callable[[Batch], Logits]:
    from ldsearch.export.loading import load_exported

    return _of_torch(load_exported(folder), device)


def _of_transformers(folder: Path, device: str) -> Callable[[Batch], Logits]:
    from ldsearch.supernet.folder import load_model

    return _of_torch(load_model(str(folder))[0].eval(), device)


def _of_torch(model: Any, device: str) -> Callable[[Batch], Logits]:
    import torch

    from ldsearch.supernet.heads import logits_of

    torch.nn.Module.to(model, device)

    def call(batch: Batch) -> Logits:
        with torch.inference_mode():
            moved = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
            logits: Logits = logits_of(model(**moved)).float().cpu().numpy()
        return logits

    return call


READERS: Mapping[str, Callable[[Path, str], Callable[[Batch], Logits]]] = MappingProxyType(
    {"ldsearch.load": _of_ldsearch, "stock AutoModel": _of_transformers, "onnxruntime": _of_onnxruntime}
)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
