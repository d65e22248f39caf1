"""Runs exported folders in a process of its own: ``python -m ldsearch.export.reader PLACE``.

Knows no supernet before everything is compared; an ONNX folder is run by NumPy and ONNX Runtime alone.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ldsearch.export.card import ONNX_FILE

Batch = Mapping[str, NDArray[np.int64]]
Logits = NDArray[np.float32]
Job = tuple[Path, str]
Readers = tuple[Path, Sequence[str]]

ASKED, INPUTS = "asked.json", "inputs.npz"
# What stock configurations leave out, since it is their default.
UNNAMED = ("LABEL_0", "LABEL_1")


@dataclass(frozen=True)
class Loaded:
    """An exported folder as its user has it.

    Args:
        call: Gives a batch's logits; a span head's two as shape (B, n, 2).
        labels: What the outputs are called, in id order.
    """

    call: Callable[[Batch], Logits]
    labels: Sequence[str]


def run(jobs: Sequence[Job], batches: Sequence[Batch], device: str = "cpu") -> list[list[Logits]]:
    """What exported folders make of batches.

    Args:
        jobs: Folders, and who reads each: a name of ``READERS``.
        batches: Inputs by name, each of shape (B, n).
        device: Where torch runs them.

    Returns:
        Logits of each batch, for each job.
    """
    return [
        [loaded.call(batch) for batch in batches]
        for loaded in (READERS[reader](Path(folder), device) for folder, reader in jobs)
    ]


def answers(exports: Sequence[Readers], batches: Sequence[Batch], device: str = "cpu") -> Iterator[Any]:
    """What exported folders say of themselves and make of batches, one after the other.

    Args:
        exports: Folders, and who reads each: names of ``READERS``.
        batches: Inputs by name, each of shape (B, n).
        device: Where torch runs them.

    Yields:
        For each export the labels that each reader finds, then for each batch each reader's logits.
    """
    for folder, readers in exports:
        models = [READERS[reader](Path(folder), device) for reader in readers]
        yield from (list(model.labels) for model in models)
        for batch in batches:
            yield from (model.call(batch) for model in models)


def send(out: IO[bytes], answer: Any) -> None:
    """Write an array, or what JSON can hold, as ``receive`` reads it."""
    if not isinstance(answer, np.ndarray):
        out.write(json.dumps({"said": answer}).encode() + b"\n")
    else:
        out.write(json.dumps({"dtype": answer.dtype.str, "shape": answer.shape}).encode() + b"\n")
        out.write(answer.tobytes())
    out.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next answer.

    Raises:
        EOFError: If there is none.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    head = json.loads(line)
    if "said" in head:
        return head["said"]
    kind = np.dtype(head["dtype"])
    data = bytearray(stream.read(kind.itemsize * int(np.prod(head["shape"]))))
    if len(data) < kind.itemsize * int(np.prod(head["shape"])):
        raise EOFError
    return np.frombuffer(data, kind).reshape(head["shape"])


def main(place: Path) -> None:
    """Run what ``ldsearch.export.check`` left in a folder, and time it once that says so on stdin."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    asked = json.loads((place / ASKED).read_text(encoding="utf-8"))
    with np.load(place / INPUTS) as file:
        held = dict(file)
    batches = [
        {name.partition(".")[2]: array for name, array in held.items() if name.startswith(f"{index}.")}
        for index in range(asked["batches"])
    ]
    exports = [(Path(folder), readers) for folder, readers in asked["exports"]]
    for answer in answers(exports, batches, asked["device"]):
        send(out, answer)
    if sys.stdin.readline():  # nothing else computes now
        from ldsearch.export.timing import Timing, timings

        for each in timings([folder for folder, _ in exports], Timing(**asked["timing"]), asked["device"]):
            send(out, each)


def _of_onnxruntime(folder: Path, device: str) -> Loaded:
    graph = import_module("onnxruntime").InferenceSession(folder / ONNX_FILE)  # as the card says
    names = [entry.name for entry in graph.get_inputs()]

    def call(batch: Batch) -> Logits:
        blank = np.zeros_like(batch["input_ids"])  # one segment, where the tokenizer names none
        found = graph.run(None, {name: batch.get(name, blank) for name in names})
        return np.stack(found, axis=-1) if len(found) > 1 else found[0]

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    named = config.get("id2label") or dict(enumerate(UNNAMED))
    return Loaded(call, [name for _, name in sorted(named.items(), key=lambda pair: int(pair[0]))])


def _of_ldsearch(folder: Path, device: str) -> Loaded:
    from ldsearch.export.folder import load_exported

    return _of_torch(load_exported(folder), device)


def _of_transformers(folder: Path, device: str) -> Loaded:
    from ldsearch.supernet.folder import load_model

    return _of_torch(load_model(str(folder))[0].eval(), device)


def _of_torch(model: Any, device: str) -> Loaded:
    import torch

    from ldsearch.supernet.heads import logits_of

    torch.nn.Module.to(model, device)

    def call(batch: Batch) -> Logits:
        with torch.inference_mode():
            moved = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
            logits: Logits = logits_of(model(**moved)).float().cpu().numpy()
        return logits

    return Loaded(call, [model.config.id2label[index] for index in sorted(model.config.id2label)])


READERS: Mapping[str, Callable[[Path, str], Loaded]] = MappingProxyType(
    {"ldsearch.load": _of_ldsearch, "stock AutoModel": _of_transformers, "onnxruntime": _of_onnxruntime}
)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
