"""ldsearch export: write a sub-network as a Hugging Face folder."""

from pathlib import Path
from typing import Annotated

import typer

from ldsearch.cli.console import SubnetOption, quiet_libraries


def export(
    folder: Annotated[Path, typer.Argument(help="A search run, or a supernet with --subnet.")],
    output: Annotated[Path, typer.Argument(help="Folder to write; must not exist or be empty.")],
    subnet: SubnetOption = None,
) -> None:
    """Export the run's best sub-network; the reloaded outputs are compared with the supernet's first.

    Fewer blocks: an ordinary folder that stock `AutoModelForSequenceClassification` loads. Shorter
    lengths: `ldsearch.load(folder)`.

    **Examples**

    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/docstrings-0.4`

    - `ldsearch export runs/docstrings-lengthdrop exported/full --subnet full`
    """
    from ldsearch.export.huggingface import SUBNET_FILE
    from ldsearch.workflows.deliver import export_model

    quiet_libraries()
    written = export_model(folder, output, subnet=subnet)
    loader = (
        f'ldsearch.load("{written}")'
        if (written / SUBNET_FILE).is_file()
        else f'AutoModelForSequenceClassification.from_pretrained("{written}")'
    )
    print(f"written: {written}; outputs equal the supernet's; load it with {loader}")
