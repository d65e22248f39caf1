"""Options that would have no effect, or contradict each other, refused before anything is loaded."""

from pathlib import Path

from ldsearch.errors import LdsearchError
from ldsearch.options import PARITY, TrainSupernet, flag_of
from ldsearch.options.binding import changed
from ldsearch.tasks import who_reads
from ldsearch.training.strategies import STRATEGIES

# Options of what one kind of gene varies.
_OF_GENES = {
    "depth": ("layer_drop", "layer_drop_schedule", "target_layers", "min_layers", "teacher_drops"),
    "lengths": ("parity", "drop_bound", "token_score", "memory", "length_mode"),
}


def check_training(options: TrainSupernet) -> None:
    """Refuse options that the strategy, the task or the data do not read.

    Raises:
        LdsearchError: Naming the first, and what reads it.
    """
    declared = {name: make.reads for name, make in STRATEGIES.items() if hasattr(make, "reads")}
    for name in changed(options):
        needs = {strategy: reads[name] for strategy, reads in declared.items() if name in reads}
        own = declared.get(options.strategy, {name: name})
        preset = options.parity and name in PARITY  # where that has no effect --parity is refused
        if needs and not preset and getattr(options, own.get(name, ""), None) is None:
            by = [
                who + (f" with {flag_of(needed)}" if needed != name else "") for who, needed in needs.items()
            ]
            raise LdsearchError(
                f"{flag_of(name)} is for --strategy {' or '.join(by)}, not {options.strategy}"
            )
    for gene, needing in _OF_GENES.items():
        if options.strategy == "lengthdrop" and gene not in options.genes:
            for name in needing:
                if name in changed(options) and not (options.parity and name in PARITY):
                    raise LdsearchError(
                        f"{flag_of(name)} has no effect with --genes {options.genes}: give --genes {gene} or "
                        "depth+lengths"
                    )
    for name in changed(options):
        if (kinds := who_reads(name)) and options.task not in kinds:
            raise LdsearchError(f"{flag_of(name)} is for --task {', '.join(kinds)}, not {options.task}")
    check_data(options.data, options.config)


def check_data(data: str, config: str | None) -> None:
    """Refuse a configuration of what has none.

    Raises:
        LdsearchError: If the data are a file.
    """
    if config is not None and Path(data).is_file():
        raise LdsearchError(f"--config names a configuration of a hub dataset; {data} is a file")
