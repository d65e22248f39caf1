"""Reads exported folders in a process of its own: ``python -m ldsearch.export.reader PLACE``.

Writes the logits of each export to ``PLACE/<index>/logits.safetensors``, then all latencies to
``PLACE/latency.json``. Knows no supernet before every logit is written; an ONNX folder is run by NumPy and
its runtime alone.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ldsearch.export.names import ONNX_FILE
from ldsearch.subnet import SUBNET_FILE

Batch = Mapping[str, NDArray[np.int64]]
Logits = NDArray[np.float32]
# Gives a batch's logits, a span head's two as shape (B, n, 2); and what the outputs are called, in id order.
Loaded = tuple[Callable[[Batch], Logits], list[str]]
# A folder, who reads it (names of ``READERS``), and the lengths that an elastic graph is fed; none: its own.
Export = tuple[Path, Sequence[str], Sequence[int]]

JOB_FILE, INPUTS_FILE = "job.json", "inputs.safetensors"
LOGITS_FILE, LATENCY_FILE = "logits.safetensors", "latency.json"


@dataclass(frozen=True)
class Answer:
    """Outputs of a reader on an export.

    Args:
        labels: What the outputs are called, in id order.
        logits: Of each batch.
    """

    labels: Sequence[str]
    logits: Sequence[Logits]


def answers(
    exports: Sequence[Export], batches: Sequence[Batch], device: str = "cpu"
) -> Iterator[list[Answer]]:
    """Outputs of each reader on exported folders.

    Args:
        exports: Folders, their readers and lengths.
        batches: Inputs by name, each of shape (B, n).
        device: Where torch runs them.

    Yields:
        For each export, the answer of each of its readers.
    """
    for folder, readers, keep in exports:
        models = [READERS[reader](Path(folder), device) for reader in readers]
        fed = {"keep": np.array([keep], dtype=np.int64)} if keep else {}
        yield [Answer(labels, [call({**batch, **fed}) for batch in batches]) for call, labels in models]


def write_job(
    place: Path,
    exports: Sequence[Export],
    batches: Sequence[Batch],
    device: str,
    timing: Mapping[str, Any] | None,
) -> None:
    """Write what ``main`` reads; ``timing`` holds the fields of a ``TimingJob``; None: nothing is timed."""
    named = [[str(folder.resolve()), list(readers), list(keep)] for folder, readers, keep in exports]
    job = {"exports": named, "batches": len(batches), "device": device, "timing": timing}
    (place / JOB_FILE).write_text(json.dumps(job), encoding="utf-8")
    save_file(
        {f"{i}.{name}": array for i, batch in enumerate(batches) for name, array in batch.items()},
        place / INPUTS_FILE,
    )


def read_answers(place: Path, export: int) -> list[Answer]:
    """Read what ``main`` wrote of an export, reader by reader."""
    with safe_open(place / str(export) / LOGITS_FILE, "numpy") as file:
        labels: list[list[str]] = json.loads(file.metadata()["labels"])
        batches = len(file.keys()) // len(labels)
        return [
            Answer(names, [file.get_tensor(f"{reader}.{batch}") for batch in range(batches)])
            for reader, names in enumerate(labels)
        ]


def main(place: Path) -> None:
    """Run the job that ``write_job`` left in a folder."""
    job = json.loads((place / JOB_FILE).read_text(encoding="utf-8"))
    batches: list[dict[str, NDArray[np.int64]]] = [{} for _ in range(job["batches"])]
    for key, array in load_file(place / INPUTS_FILE).items():
        index, _, name = key.partition(".")
        batches[int(index)][name] = array
    exports = [(Path(folder), readers, keep) for folder, readers, keep in job["exports"]]
    for export, given in enumerate(answers(exports, batches, job["device"])):
        folder = place / str(export)
        folder.mkdir()
        logits = {
            f"{reader}.{at}": array
            for reader, answer in enumerate(given)
            for at, array in enumerate(answer.logits)
        }
        metadata = {"labels": json.dumps([answer.labels for answer in given])}
        save_file(logits, folder / LOGITS_FILE, metadata=metadata)
    if job["timing"] is not None:
        from ldsearch.export import timing

        folders, keeps = [folder for folder, *_ in exports], [keep for *_, keep in exports]
        latencies = timing.timings(folders, timing.TimingJob(**job["timing"]), keeps)
        (place / LATENCY_FILE).write_text(json.dumps(latencies), encoding="utf-8")


def _of_onnxruntime(folder: Path, device: str) -> Loaded:
    graph = import_module("onnxruntime").InferenceSession(folder / ONNX_FILE)  # as the card says
    names = [entry.name for entry in graph.get_inputs()]
    optional = [entry.name for entry in graph.get_overridable_initializers()]
    return _of_graph(folder, names, optional, lambda inputs: graph.run(None, inputs))


def _of_openvino(folder: Path, device: str) -> Loaded:
    library = import_module("openvino")
    fields = json.loads((folder / SUBNET_FILE).read_text(encoding="utf-8"))
    graph = library.Core().compile_model(folder / ONNX_FILE, "CPU", fields["settings"])  # as the card says
    names = [port.get_any_name() for port in graph.inputs]
    return _of_graph(folder, names, [], lambda inputs: list(graph(inputs).values()))


def _of_graph(
    folder: Path, names: list[str], optional: list[str], run: Callable[[dict[str, Any]], list[Logits]]
) -> Loaded:
    def call(batch: Batch) -> Logits:
        blank = np.zeros_like(batch["input_ids"])  # one segment, where the tokenizer names none
        given = {name: batch[name] for name in optional if name in batch}
        outputs = run({**{name: batch.get(name, blank) for name in names}, **given})
        return np.stack(outputs, axis=-1) if len(outputs) > 1 else outputs[0]

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return call, [name for _, name in sorted(config["id2label"].items(), key=lambda pair: int(pair[0]))]


def _of_ldsearch(folder: Path, device: str) -> Loaded:
    from ldsearch.export.loading import load_exported

    return _of_torch(load_exported(folder), device)


def _of_transformers(folder: Path, device: str) -> Loaded:
    from ldsearch.supernet.folder import load_model
    from ldsearch.supernet.remote_code import unwarned

    with unwarned():
        model, _ = load_model(str(folder))
    return _of_torch(model.eval(), device)


def _of_torch(model: Any, device: str) -> Loaded:
    import torch

    from ldsearch.supernet.heads import logits_of

    torch.nn.Module.to(model, device)

    def call(batch: Batch) -> Logits:
        with torch.inference_mode():
            moved = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
            logits: Logits = logits_of(model(**moved)).float().cpu().numpy()
        return logits

    return call, [model.config.id2label[index] for index in sorted(model.config.id2label)]


READERS: Mapping[str, Callable[[Path, str], Loaded]] = MappingProxyType(
    {
        "ldsearch.load": _of_ldsearch,
        "stock AutoModel": _of_transformers,
        "onnxruntime": _of_onnxruntime,
        "openvino": _of_openvino,
    }
)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
