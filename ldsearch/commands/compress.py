"""One command from a fine-tuned model and some texts to a faster file, and the table that it prints."""

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.commands.console import (
    print_notes,
    print_summary,
    progress_bars,
    quiet_libraries,
    resumable,
)
from ldsearch.compression.compress import compress_into, folder_of
from ldsearch.export.loading import load_exported
from ldsearch.options import Compress


def main(options: Compress) -> dict[str, Any]:
    """Compress, and print one table."""
    quiet_libraries()
    folder = folder_of(options)
    with resumable("run the same command again to go on"), progress_bars() as bars:
        done = compress_into(folder, options, progress=bars, note=lambda text: print_notes([text]))
    print_summary(done)
    print(f"more: ldsearch report {folder}; with another --budget the same command goes on from here")
    return done.to_dict()


def compress(model: str | Path, texts: Any, **options: Any) -> Any:
    """``ldsearch compress`` from Python: the model in the runtime that serves, called like the stock one.

    Args:
        model: Folder or hub id of a fine-tuned model.
        texts: A list of texts, a pandas frame or a ``datasets.Dataset`` with texts, and labels if there are
            some; or a file, a folder or a hub id.
        options: Of ``ldsearch compress``; a ``budget`` may be a number.

    Returns:
        What ``ldsearch.load`` gives, with an attribute ``table``: the pandas frame that the command prints.

    Raises:
        LdsearchError: As ``compress_into``.
    """
    quiet_libraries()
    if "budget" in options:
        options["budget"] = str(options["budget"])
    with tempfile.TemporaryDirectory() as place:
        data = texts
        if not isinstance(texts, str | Path):
            table = texts.to_pandas() if hasattr(texts, "to_pandas") else texts
            table = table if isinstance(table, pd.DataFrame) else pd.DataFrame({"text": list(texts)})
            data = Path(place) / "texts.jsonl"
            table.to_json(data, orient="records", lines=True, force_ascii=False)
        how = Compress(model=str(model), data=str(data), **options)
        done = compress_into(folder_of(how), how)
    served = load_exported(done.folder / "model")
    served.table = done.table  # type: ignore[assignment]
    return served
