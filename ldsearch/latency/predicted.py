"""What the latency table beside a supernet predicts for sub-networks that are timed now."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldsearch.errors import LdsearchError
from ldsearch.latency.inputs import Cell
from ldsearch.latency.measuring import Entry
from ldsearch.latency.stages import SupernetStages
from ldsearch.latency.table import LatencyTable
from ldsearch.supernet import Supernet

# What runs block by block as the table's stages do.
TABLED = ("eager", "own")


def table_beside(home: Path) -> Path:
    """Where a supernet's latency table lies, unless it is said."""
    return home.parent / f"{home.name}-latency.csv"


@dataclass(frozen=True)
class Predictor:
    """Milliseconds that a table predicts, where it can.

    Args:
        table: None where there is none of this model, device and precision.
        why_not: Of a table that lies there and is not used, in words.
    """

    table: LatencyTable | None = None
    why_not: str = ""

    @classmethod
    def beside(cls, home: Path, supernet: Supernet, device: Mapping[str, Any]) -> "Predictor":
        """From the table beside a supernet.

        Args:
            home: The supernet's folder.
            supernet: What lies there.
            device: ``device_facts``.
        """
        path = table_beside(home)
        if not path.is_file():
            return cls()
        try:
            table = LatencyTable.load(path)
            table.require({**device, "model": SupernetStages(supernet).facts["model"]})
        except LdsearchError as error:
            return cls(why_not=f"nothing is predicted: {error}")
        return cls(table)

    def __call__(self, entry: Entry, cell: Cell) -> float:
        """Milliseconds of a batch; NaN where the table does not know."""
        table, stack = self.table, entry.subnet.encoder
        if table is None or entry.runtime not in TABLED or not table.finished(cell.batch):
            return math.nan
        if not isinstance(cell.length, int) or cell.length > table.grid[-1]:
            return math.nan
        if stack is None or stack.structured:
            return math.nan
        return float(table.predict([entry.subnet], cell.batch, cell.length)[0])
