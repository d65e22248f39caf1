"""Fills a supernet's latency table."""

from pathlib import Path

from ldsearch.commands.profile import OnDone, ProfileOptions, load_resting, trained_length
from ldsearch.errors import LdsearchError, RunError
from ldsearch.latency.clock import Clock, Noise, device_facts, synchroniser, threads
from ldsearch.latency.table import LatencyTable, SupernetStages, build_table, length_grid
from ldsearch.runs import RUN_FILE
from ldsearch.target import Target


def tabulate(
    folder: str | Path, path: str | Path, options: ProfileOptions, on_done: OnDone = lambda done, total: None
) -> tuple[LatencyTable, tuple[Noise, ...]]:
    """Measure what a latency table lacks; the same call goes on after an interruption.

    Args:
        folder: A supernet, or a run of one.
        path: The table's file.
        options: Batch sizes, lengths, repeats and threads.
        on_done: Called with timed calls done and all.

    Returns:
        The table, and the noise of each group measured now.

    Raises:
        LdsearchError: If the model cannot be tabled, or the file is another's.
    """
    folder, path = Path(folder), Path(path)
    if options.runtime != ProfileOptions.runtime:
        raise LdsearchError("--table times the supernet's own stages: it takes no --runtime")
    numbers = [length for length in options.lengths if isinstance(length, int)]
    if len(numbers) < len(options.lengths):
        raise LdsearchError("--table needs lengths in tokens: --length data is none")
    home = folder if not (folder / RUN_FILE).is_file() else Target.resolve(folder).supernet
    supernet = load_resting(home)
    lengths = length_grid(numbers or [trained_length(home)])
    stages = SupernetStages(supernet)
    if lengths[-1] > supernet.longest:
        raise LdsearchError(f"the model has {supernet.longest} positions, too few for {lengths[-1]} tokens")
    clock = Clock(options.repeats, synchronise=synchroniser(supernet.model.device))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with threads(options.threads):
            device = device_facts(supernet.model.device, supernet.model.dtype)
            return build_table(stages, device, lengths, options.batches, path, clock, on_done)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
