"""A fine-tuned model that was not trained here, or an export: a supernet of which one sub-network works."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ldsearch.costs.workload import Workload
from ldsearch.disk.fingerprint import versions, weights_fingerprint
from ldsearch.errors import SupernetError
from ldsearch.export.loading import open_exported
from ldsearch.runs.run import RUN_FILE, SUPERNET_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import SupernetRecord
from ldsearch.tasks import DataSource, kinds_of_head, likeliest_kind, task_kind
from ldsearch.tasks.base import fingerprints_of
from ldsearch.tasks.tables import Columns, read_tables
from ldsearch.training.start import known_labels

AS_IT_IS = "none"
# Tokens that a model's inputs are cut to where its tokenizer names no limit below this.
LONGEST_INPUT = 512


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model that was not made here."""
    made_here = any((folder / name).is_file() for name in (SUPERNET_FILE, RUN_FILE))
    return (folder / "config.json").is_file() and not made_here


def open_model(
    folder: Path, data: str | None, task: str | None, columns: Columns
) -> tuple[Supernet, Subnet, SupernetRecord, PreTrainedTokenizerBase]:
    """The model, what runs of it, a record of what is known of it, and its tokenizer.

    Args:
        folder: Of a fine-tuned model as ``save_pretrained`` writes it.
        data: Labelled rows like those it was trained on; None: it is not scored.
        task: Kind of task; None: what model and data are for.
        columns: Of the data.

    Raises:
        SupernetError: If it is no model of a supported kind.
        DataError: If the data cannot be read, or are labelled otherwise than the model.
    """
    supernet, subnet, tokenizer = open_exported(folder)
    supernet.eval()
    reference = min(tokenizer.model_max_length, supernet.longest, LONGEST_INPUT)
    source, labels, splits = {"data": folder.name}, known_labels(str(folder), supernet.head.name) or [], {}
    seen = Workload.padded(reference)
    if data is not None:
        config, given = supernet.model.config, DataSource(data, columns=columns)
        kinds = [task_kind(task)] if task else kinds_of_head(supernet.head.name, config)
        if not kinds:
            raise SupernetError(f"no task reads data for a {type(supernet.model).__name__}: leave --data out")
        tables = read_tables(given, kinds[0].by_line)
        read = likeliest_kind(kinds, config, lambda: tables["train"], given).of_tables(tables, given, labels)
        read.check_model(supernet.model.config)
        source, labels = dict(read.source), list(read.labels)
        prints = fingerprints_of(read)
        splits = {
            name: {"examples": len(rows), "fingerprint": prints[name]} for name, rows in read.splits.items()
        }
        seen = read.encode("search", tokenizer, reference).workload
    record = SupernetRecord(
        strategy=AS_IT_IS,
        seed=0,
        blocks=supernet.blocks,
        depths=dict(supernet.depths),
        reference=reference,
        drop_bound=None,
        layer_drop=0.0,
        length_mode="ratio",
        score=supernet.score,
        memory=supernet.memory,
        skipped=supernet.skipped,
        parity=False,
        source=source,
        labels=labels,
        splits=splits,
        workload=seen.to_dict(),
        weights=weights_fingerprint(folder),
        metrics={},
        training={"model": folder.name},
        versions=versions(),
    )
    return supernet, subnet, record, tokenizer
