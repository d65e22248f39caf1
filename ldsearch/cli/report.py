"""ldsearch report: one HTML page on finished searches."""

from pathlib import Path
from typing import Annotated, Any

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished search runs.")],
    output: Annotated[Path, typer.Option(help="The page; its figures lie beside it as SVG and PNG.")] = Path(
        "report.html"
    ),
) -> dict[str, Any]:
    """Write a self-contained HTML page on searches; loads no model and runs nothing.

    Frontiers with intervals and controls, convergence, kept blocks and lengths, health, costs, latency where
    it was measured, the commands to rebuild it. A page that this command wrote before is replaced.

    **Examples**

    - `ldsearch report runs/sst2-lengthdrop-evolve`

    - `ldsearch report runs/bert-evolve runs/distilbert-evolve --output bert.html`
    """
    from ldsearch.workflows.reporting.report import report as write

    found = write(runs, output)
    kinds = f"{len(found.figures) // 2} figures beside it, each as SVG and PNG"
    print(f"written: {found.page} ({kinds})")
    return {"page": str(found.page)}
