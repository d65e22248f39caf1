"""ldsearch info: what a supernet or run folder holds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import print_fields


def info(folder: Annotated[Path, typer.Argument(help="A supernet or a search run.")]) -> dict[str, Any]:
    """Describe a supernet or a search run.

    **Examples**

    - `ldsearch info runs/docstrings-lengthdrop`

    - `ldsearch info runs/docstrings-lengthdrop-evolve`
    """
    from ldsearch.commands.info import info as describe

    fields = describe(folder)
    print_fields(fields)
    return fields
