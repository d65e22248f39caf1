"""Options that several verbs share."""

import os
from dataclasses import dataclass
from pathlib import Path

from ldsearch.errors import RunError, shortened
from ldsearch.options.binding import option

_LONGEST_NAME = 200  # bytes: what stands beside a folder while it is written has a longer name
RUNTIMES_OF_FILES = (
    "onnx, onnx-int8, openvino (in the precision that it takes here), openvino-f32, openvino-int8, or auto, "
    "the one in which the full model is fastest here and keeps its answers."
)


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The folder that a verb writes to."""

    name: str | None = option(None, "Folder below --runs to write to.")
    runs: Path = option(Path("runs"), "Folder that holds the runs.")

    def place(self, default: str) -> Path:
        """The folder to write to.

        Args:
            default: Its name, where none was given.

        Raises:
            RunError: If ``--name`` is no name of a folder in ``--runs``.
        """
        name = default if self.name is None else self.name
        hidden = name.startswith(".") or not name.strip() or name != Path(name).name
        if hidden or "\\" in name or len(os.fsencode(name)) > _LONGEST_NAME:
            raise RunError(
                f"--name {shortened(name)!r} names no folder below {self.runs}: use one plain name"
            )
        return self.runs / name


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Randomness."""

    seed: int = option(0, "Seed of everything random.", least=0, most=2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class MovedData:
    """Data of a supernet that lie elsewhere now."""

    data: str | None = option(None, "Where the supernet's data lie now, if they were moved.")


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """How the files of a data set are read."""

    PANEL = "Data"

    config: str | None = option(None, "Configuration of a hub dataset.")
    validation: str | None = option(
        None, "File with rows to search and report on: halves, without a test split."
    )
    keep_overlap: bool = option(False, "Use every row, also those that share text across splits.")
    text_column: str | None = option(None, "Column of the text, or of the source.")
    label_column: str | None = option(None, "Column of the label, or of the target.")


@dataclass(frozen=True, kw_only=True)
class NamedSubnet(MovedData):
    """A sub-network and the model that it belongs to."""

    folder: Path = option(
        ..., "A search run, a recovered model, or a supernet with --subnet.", argument="FOLDER"
    )
    subnet: str | None = option(None, "Sub-network as JSON, a file that holds it, or 'full'.")


@dataclass(frozen=True, kw_only=True)
class SharedStorage:
    """Measurements that several workers share."""

    PANEL = "Storage"

    storage: str | None = option(
        None,
        "Where workers share measurements: journal:PATH, or the SQLAlchemy URL of a database.",
        shown="the runs' measurements.db",
    )


@dataclass(frozen=True, kw_only=True)
class Take:
    """The choice among measured sub-networks."""

    budget: str | None = option(
        None,
        "The most it may cost: 0.4 (share of the full model's MACs), 2.1GMACs, 60Mparams, "
        "12ms@batch=8,length=128; 2x@batch=8,length=128: twice as fast as the full model.",
    )
    at_least: str | None = option(
        None,
        "The cheapest that scores at least so much: 0.9, or full (the full model's score); full-0.005 or "
        "full-0.5%: that loses less than so much to it, with 95% confidence.",
    )
    most_accurate: bool = option(False, "The best score at any cost; what evolve takes by itself.")


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How texts are generated."""

    PANEL = "Decoding"

    beams: int = option(1, "Of beam search; 1 is greedy.")
    length_penalty: float = option(1.0, "A log-probability is divided by the text's length to this power.")
    no_repeat_ngram: int = option(0, "No run of so many tokens twice in a text; 0: any may.")
    min_target: int = option(0, "The fewest tokens of a text.")
    max_target: int = option(128, "The most tokens of a text.")
    limit: int | None = option(None, "Decode only the first so many examples.", shown="all", least=1)
