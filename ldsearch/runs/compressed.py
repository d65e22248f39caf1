"""The result of ``ldsearch compress``: points of one file, timed, scored on rows that chose nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ldsearch.errors import RunError, one_line
from ldsearch.runs.run import COMPRESSED_FILE, read_json
from ldsearch.runs.summary import Summary


@dataclass(frozen=True)
class Compressed(Summary):
    """A compressed model.

    Its points are the full model in its fastest runtime, the chosen sub-network, others that the file runs;
    their scores are of rows that chose nothing, differences to the full model in fp32 there.

    Args:
        folder: Where everything lies; the file that serves in ``model``.
        runtime: Where it is served.
        seconds: That this call took.
    """

    folder: Path
    runtime: str
    seconds: float

    reference: ClassVar[str] = "full in fp32"

    @classmethod
    def open(cls, folder: Path) -> "Compressed | None":
        """Read a folder; None if nothing in it is finished.

        Raises:
            RunError: If its record is damaged.
        """
        path = folder / COMPRESSED_FILE
        fields = read_json(path) if path.is_file() else {}
        if "points" not in fields:
            return None
        names = ("points", "metric", "words", "runtime", "seconds")
        try:
            done = cls(folder=folder, **{name: fields[name] for name in names})
            _ = done.table
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {one_line(error)}") from error
        return done

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        own = {name: value for name, value in vars(self).items() if name != "folder"}
        return {"run": str(self.folder), "model": str(self.folder / "model"), **own}
