"""ldsearch export: write a sub-network as a Hugging Face folder or one ONNX file."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import MovedData, SubnetOption, print_notes, quiet_libraries, watching


class Format(StrEnum):
    """What is written."""

    hf = "hf"
    onnx = "onnx"


def export(
    folder: Annotated[Path, typer.Argument(help="A search run, or a supernet with --subnet.")],
    output: Annotated[Path, typer.Argument(help="Folder to write; must not exist or be empty.")],
    subnet: SubnetOption = None,
    format: Annotated[
        Format,
        typer.Option("--format", help="A Hugging Face folder, or one file for ONNX Runtime."),
    ] = Format.hf,
    everything: Annotated[
        bool, typer.Option("--all", help="Every sub-network of the run's frontier, and index.json.")
    ] = False,
    push_to_hub: Annotated[
        str | None, typer.Option("--push-to-hub", help="Upload what was written as this model repository.")
    ] = None,
    data: MovedData = None,
) -> dict[str, Any]:
    """Export the run's best sub-network, once a fresh process has loaded it and given its outputs and score.

    The search rows must get the supernet's predictions and the run's score. Latency is measured beside the
    full model's. A failed check removes what was written.

    Fewer blocks: an ordinary folder that stock `AutoModelForSequenceClassification` loads. Shorter
    lengths: `ldsearch.load(folder)`. ONNX: tokens are dropped inside the graph; onnxruntime alone runs it.

    **Examples**

    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/docstrings-0.4`

    - `ldsearch export runs/docstrings-lengthdrop exported/full --subnet full`

    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/frontier --all --format onnx`
    """
    from ldsearch.commands.export import export_frontier, export_one
    from ldsearch.errors import ExportError
    from ldsearch.export.hub import check_name, push

    quiet_libraries()
    if everything and subnet is not None:
        raise ExportError("--all exports the run's frontier: leave --subnet out")
    if push_to_hub is not None:
        check_name(push_to_hub)
    with watching() as watcher:
        phase = ""

        def on_step(name: str, total: int) -> None:
            nonlocal phase
            if name != phase:
                watcher.phase(name, total)
            phase = name
            watcher.progress.advance(watcher.bar)

        if everything:
            done = export_frontier(folder, output, format=format, data=data, on_step=on_step)
        else:
            done = export_one(folder, output, subnet=subnet, format=format, data=data, on_step=on_step)
    print_notes(done.notes)
    for index, found in enumerate(done.verified):
        place = output / str(index) if everything else output
        print(f"verified {place}: {found.describe()}")
        noisy = " (noisy machine: ldsearch profile measures longer)"
        timed = "; ".join(each.describe() for each in found.latency)
        print(f"latency {place}: {timed}{noisy if any(each.noisy for each in found.latency) else ''}")
    print(f"written: {done.folder}; {_how(done.folder, everything)}")
    if push_to_hub is not None:
        print(f"pushed: {push(done.folder, push_to_hub)}")
    return {"folder": str(done.folder), "exports": [found.to_dict() for found in done.verified]}


def _how(written: Path, everything: bool) -> str:
    """How to go on."""
    from ldsearch.export.card import ONNX_FILE
    from ldsearch.export.folder import SUBNET_FILE
    from ldsearch.supernet.heads import head_named

    if everything:
        return f"{written / 'index.json'} names every folder with its score and costs"
    if (written / ONNX_FILE).is_file():
        return f'run it with onnxruntime.InferenceSession("{written / ONNX_FILE}")'
    if (written / SUBNET_FILE).is_file():
        return f'load it with ldsearch.load("{written}")'
    architecture = json.loads((written / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    return f'load it with AutoModelFor{head_named(architecture).name}.from_pretrained("{written}")'
