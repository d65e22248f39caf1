"""Reads what a command line names: a sub-network, the model it belongs to, and the rows that chose it."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ldsearch.disk.files import read_json
from ldsearch.errors import RunError, SubnetError
from ldsearch.runs.run import RUN_FILE, SUPERNET_FILE, Run, beside, run_within
from ldsearch.subnet import Subnet
from ldsearch.supernet.folder import read_record


@dataclass(frozen=True)
class Target:
    """A sub-network and the model it belongs to, as a run or a command line names them.

    Args:
        supernet: The supernet's folder, or that of a model with one sub-network trained on its own.
        subnet: The sub-network.
        run: The run that took the sub-network; None where the sub-network was given directly.
        chosen_on: The split that chose the sub-network; None where none did, as far as is known.
        parent: Another whose full model is the one to compare with: the supernet that a recovered model comes
            from, or what a searched one was trained from.
        runs: Where the run keeps its measurements; None: next to the supernet.
    """

    supernet: Path
    subnet: Subnet
    run: Run | None = None
    chosen_on: str | None = None
    parent: Path | None = None
    runs: Path | None = None

    @classmethod
    def resolve(cls, folder: str | Path, subnet: str | None = None) -> "Target":
        """From a run (its best), a recovered model (its sub-network), or any folder and a sub-network.

        Args:
            folder: A run, a recovered model or a supernet.
            subnet: JSON, a file as ``ldsearch info --save`` writes it, or ``"full"``.

        Raises:
            RunError: If the folder is none of them, or needs a sub-network named with it.
            SubnetError: If the JSON is no sub-network.
        """
        folder = run_within(Path(folder))
        if (folder / SUPERNET_FILE).is_file():
            return cls._of_model(folder, subnet)
        if not (folder / RUN_FILE).is_file():
            raise RunError(f"{folder} is neither a supernet nor a search run")
        run = Run.open(folder)
        if subnet is not None:
            chosen, split = _named(subnet, run.supernet)
            return cls(run.supernet, chosen, None, split, run.full_model, run.measurements)
        return cls(run.supernet, run.best.subnet, run, run.best.split, run.full_model, run.measurements)

    @classmethod
    def _of_model(cls, folder: Path, subnet: str | None) -> "Target":
        record = read_record(folder)
        if record.subnet is None:
            if subnet is None:
                raise RunError(
                    f"{folder} is a supernet: name a sub-network with --subnet, or give a search run"
                )
            chosen, split = _named(subnet, folder)
            return cls(folder, chosen, None, split)
        own = Subnet.from_fields(record.subnet)
        if subnet is not None and _named(subnet, folder)[0] != own:
            raise RunError(f"{folder} holds one sub-network trained on its own: {own.describe()}")
        parent = beside(folder, str(record.training.get("supernet", ".")))
        return cls(folder, own, None, record.training.get("chosen_on"), parent)

    def unbiased_split(self, splits: Collection[str]) -> str:
        """The split to report on: ``report``, unless it chose the sub-network or is not there."""
        preferred = "search" if self.chosen_on == "report" else "report"
        return preferred if preferred in splits else "search"


def _named(text: str, home: Path) -> tuple[Subnet, str | None]:
    """The sub-network, and the split it was chosen on if the file names one."""
    if text == "full":
        return read_record(home).full, None
    if text.lstrip().startswith("{"):
        return Subnet.from_json(text), None
    if not Path(text).is_file():
        raise SubnetError(f"no sub-network {text[:80]!r}: give JSON, a file that holds it, or 'full'")
    fields = read_json(Path(text), SubnetError)
    if isinstance(fields, dict) and "subnet" in fields:
        split = fields.get("split")
        if not isinstance(split, str | None):
            raise SubnetError(f"{text} names no split: {split!r}")
        return Subnet.from_fields(fields["subnet"]), split
    return Subnet.from_fields(fields), None
