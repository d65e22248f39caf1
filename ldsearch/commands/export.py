"""Exports a run's choice or its whole frontier, and prints what the checks measured."""

import json
from pathlib import Path
from typing import Any

from ldsearch.commands.console import print_notes, progress_bars, quiet_libraries
from ldsearch.disk.files import read_fields
from ldsearch.errors import ExportError
from ldsearch.export.export import export
from ldsearch.export.folder import check_hub_name, onnx_file, push
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.options import Export
from ldsearch.subnet import SUBNET_FILE
from ldsearch.supernet.heads import head_named


def main(options: Export) -> dict[str, Any]:
    """Export, and print what the checks measured."""
    quiet_libraries()
    if options.all and options.subnet is not None:
        raise ExportError("--all exports the run's frontier: leave --subnet out")
    if options.push_to_hub is not None:
        check_hub_name(options.push_to_hub)
    if not 0 < options.least_agreement <= 1:
        raise ExportError(f"--least-agreement is a share above 0, up to 1, not {options.least_agreement:g}")
    with progress_bars() as bars:
        done = export(
            options.folder,
            options.output,
            subnet=options.subnet,
            frontier=options.all,
            format=options.format,
            runtime=options.runtime,
            elastic=options.elastic,
            least_agreement=options.least_agreement,
            data=options.data,
            task=options.task,
            text_column=options.text_column,
            label_column=options.label_column,
            progress=bars,
        )
    print_notes(done.notes)
    for name, verified in zip(done.folders, done.verified, strict=True):
        place = options.output / name
        print(f"verified {place}: {verified.describe()}")
        noisy = " (noisy machine: ldsearch profile measures longer)"
        timed = "; ".join(line.describe() for line in verified.latency)
        print(f"latency {place}: {timed}{noisy if any(line.noisy for line in verified.latency) else ''}")
    print(f"written: {done.folder}; {_how(done.folder, options.all)}")
    if options.push_to_hub is not None:
        print(f"pushed: {push(done.folder, options.push_to_hub)}")
    return {"folder": str(done.folder), "exports": [verified.to_dict() for verified in done.verified]}


def _how(written: Path, everything: bool) -> str:
    """The command or line of code to go on with."""
    if everything:
        return f"{written / 'index.json'} names every folder with its score and costs"
    known = written / SUBNET_FILE
    runtime = str(read_fields(known).get("runtime", "")) if known.is_file() else ""
    if runtime and graph_runtime(runtime).library == "onnxruntime":
        return f'run it with onnxruntime.InferenceSession("{written / str(onnx_file(written))}")'
    if known.is_file():
        alone = f"; {written / 'README.md'} has the lines without ldsearch" if runtime else ""
        return f'load it with ldsearch.load("{written}"){alone}'
    architecture = json.loads((written / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    return f'load it with AutoModelFor{head_named(architecture).name}.from_pretrained("{written}")'
