"""The data that a supernet was trained with, read again and checked."""

from pathlib import Path
from typing import Any

from ldsearch.errors import DataError
from ldsearch.supernet.folder import SupernetRecord
from ldsearch.tasks import EMBEDDED, DataSource, Task, load_task
from ldsearch.tasks.base import fingerprints_of
from ldsearch.tasks.tables import Columns


def load_recorded_task(record: SupernetRecord, data: str | None) -> Task:
    """The task that ``supernet.json`` names.

    Args:
        record: What it says.
        data: Read the data from here instead (a moved file).

    Raises:
        DataError: If the data is gone, or not the data the supernet was trained with.
    """
    source: dict[str, Any] = record.source
    found = DataSource(
        data=data or source["data"],
        config=source.get("config"),
        validation=_moved(source.get("validation"), data),
        columns=Columns(**source.get("columns", {})),
        keep_overlap=bool(source.get("keep_overlap", False)),
        # Supernets of before this was recorded halved their validation rows; the embedded data have splits.
        search_rows=source.get("search_rows", "auto" if source["data"] == EMBEDDED else "half"),
        metric=source.get("metric"),
        stride=source.get("stride", DataSource.stride),
        sentences=bool(source.get("sentences", False)),
    )
    try:
        task = load_task(source.get("task", "classification"), found, record.labels or None)
    except DataError as error:
        raise DataError(f"{error} (if the data moved, say where with --data)") from error
    for split, recorded in record.splits.items():
        if fingerprints_of(task).get(split) != recorded["fingerprint"]:
            raise DataError(
                f"the {split} rows of {found.data} are not those the supernet was trained with; "
                "a comparison would mean nothing"
            )
    return task


def _moved(validation: str | None, data: str | None) -> str | None:
    """The recorded validation file, or where it lies beside the moved data."""
    if validation is None or data is None:
        return validation
    beside = Path(data).parent / Path(validation).name
    moved = not Path(validation).is_file() and beside.is_file() and beside != Path(data)
    return str(beside) if moved else validation
