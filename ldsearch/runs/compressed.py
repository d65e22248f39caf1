"""What ``ldsearch compress`` leaves: points of one file, timed, and scored on rows that chose nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ldsearch.errors import RunError, one_line
from ldsearch.runs.run import COMPRESSED_FILE, read_json


@dataclass(frozen=True)
class Compressed:
    """A compressed model.

    Args:
        folder: Where everything lies; the file that serves in ``model``.
        points: The full model in its fastest runtime, the chosen sub-network, others that the file runs:
            ``name``, ``macs`` (share of the full model's), ``score`` on rows that chose nothing,
            ``difference`` to the full model in fp32 there (95% interval), ``ms`` by batch and length.
        metric: Of the scores.
        runtime: Where it is served.
        seconds: That this call took.
        words: On data and choice, a sentence each.
    """

    folder: Path
    points: Sequence[Mapping[str, Any]]
    metric: str
    runtime: str
    seconds: float
    words: Sequence[str]

    @property
    def table(self) -> pd.DataFrame:
        """The points as they are printed."""
        rows = []
        for point in self.points:
            gap = point["difference"]
            rows.append(
                {
                    "": point["name"],
                    "MACs": f"{point['macs']:.2f}",
                    self.metric: f"{point['score']:.4f}",
                    "minus full in fp32, 95%": f"{gap['low']:+.4f} to {gap['high']:+.4f}",
                    **{f"ms, {cell}": f"{ms:.3g}" for cell, ms in point["ms"].items()},
                }
            )
        return pd.DataFrame(rows)

    @classmethod
    def open(cls, folder: Path) -> "Compressed | None":
        """What the folder holds; None: nothing that is finished.

        Raises:
            RunError: If its record is damaged.
        """
        path = folder / COMPRESSED_FILE
        fields = read_json(path) if path.is_file() else {}
        if "points" not in fields:
            return None
        names = ("points", "metric", "runtime", "seconds", "words")
        try:
            done = cls(folder, *(fields[name] for name in names))
            _ = done.table
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {one_line(error)}") from error
        return done

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        own = {name: value for name, value in vars(self).items() if name != "folder"}
        return {"run": str(self.folder), "model": str(self.folder / "model"), **own}
