"""What a training takes, and the data it names."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ldsearch.errors import DataError
from ldsearch.tasks import TextClassification
from ldsearch.tasks.classification import load_classification
from ldsearch.tasks.corpus import NAME as EMBEDDED
from ldsearch.tasks.corpus import load_docstrings
from ldsearch.tasks.tables import Columns


@dataclass(frozen=True)
class TrainOptions:
    """What ``ldsearch train-supernet`` takes.

    Args:
        data: A file, a dataset folder, a hub id, or ``"docstrings"`` (the embedded default).
        config: Configuration of a hub dataset.
        validation: A file with rows to search and report on.
        columns: Columns that are not found by name.
        keep_overlap: Use every row, also those that share text across splits.
        model: Hub id, folder, or a config.json to start from scratch; None: a small BERT from scratch.
        strategy: ``plain``, ``layerdrop`` or ``lengthdrop``.
        reference: Inputs are cut to this many tokens; None: 64 for the embedded default, else 128.
        drop_bound: LengthDrop bound p; None: by depth, so that the smallest keeps about 7%.
        layer_drop: LayerDrop probability.
        plain_share: Share of a LengthDrop training that trains the full model alone first; None: 0.4
            where the classification head starts untrained, 0 for a fine-tuned classifier.
        parity: Follow the papers' code where ldsearch departs from it.
        seed: Of everything random.
        trainer: More arguments, as the Hugging Face Trainer's command line takes them.
    """

    data: str = EMBEDDED
    config: str | None = None
    validation: str | None = None
    columns: Columns = field(default_factory=Columns)
    keep_overlap: bool = False
    model: str | None = None
    strategy: str = "lengthdrop"
    reference: int | None = None
    drop_bound: float | None = None
    layer_drop: float = 0.2
    plain_share: float | None = None
    parity: bool = False
    seed: int = 0
    trainer: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The reference length: what was asked for, or the default of the data."""
        default = 64 if self.data == EMBEDDED else 128
        return default if self.reference is None else self.reference

    @property
    def from_scratch(self) -> bool:
        """Whether the model starts without weights."""
        return self.model is None or self.model.endswith(".json")

    def identity(self) -> dict[str, Any]:
        """What makes two trainings the same; the data speak through their fingerprints."""
        naming_the_data = ("data", "validation", "config", "columns", "keep_overlap")
        return {name: value for name, value in asdict(self).items() if name not in naming_the_data}


def load_task(options: TrainOptions, known_labels: Sequence[str] | None = None) -> TextClassification:
    """The data of a training, embedded or the user's."""
    if options.data == EMBEDDED:
        if options.validation or options.config or options.keep_overlap:
            raise DataError(f"{EMBEDDED} has splits of its own: no --validation, --config or --keep-overlap")
        return load_docstrings()
    return load_classification(
        options.data,
        config=options.config,
        validation=options.validation,
        columns=options.columns,
        known_labels=known_labels,
        keep_overlap=options.keep_overlap,
    )
